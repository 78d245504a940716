"""Measures terminal programs in pseudo terminals: see screen.sh."""

import fcntl
import os
import pty
import select
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WEIR, SECONDS = os.environ["WEIR"], float(sys.argv[1])
FETCHING = shutil.which(os.environ.get("FETCHING", "target/release/examples/fetching"))
PROMETHEUS = shutil.which(os.environ.get("PROMETHEUS", "prometheus"))
COLUMNS, ROWS = 200, 50
SOURCES, SERIES = 20, 1_000
WARM_UP = 8.0
TICKS = os.sysconf("SC_CLK_TCK")
END_OF_FRAME = b"\x1b[?2026l"


class Page(BaseHTTPRequestHandler):
    """A metrics page of our own gateway, with as many other series as the budget asks for."""

    protocol_version = "HTTP/1.1"
    hangs = threading.Event()

    def log_message(self, *_):
        pass

    def do_GET(self):
        if Page.hangs.is_set():
            time.sleep(3_600)
        now = int(time.time())
        scope = 'scope="openai/acct-1/embed"'
        lines = ["# TYPE weir_offered_total counter"]
        lines += [
            f"weir_originals_total{{{scope}}} {now * 60 % 10**9}",
            f"weir_offered_total{{{scope}}} {now * 60 % 10**9}",
            f"weir_admitted_total{{{scope}}} {now * 60 % 10**9}",
            f"weir_completed_total{{{scope}}} {now * 59 % 10**9}",
            f"weir_attempts_total{{{scope}}} {now * 61 % 10**9}",
        ]
        lines += [f'other_total{{series="{n}"}} {(now * (n + 7)) % 10**9}' for n in range(SERIES - 5)]
        body = ("\n".join(lines) + "\n").encode()
        self.send_response(200)
        self.send_header("content-type", "text/plain; version=0.0.4")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    """All sources. A watcher that ends in the middle of a page is no error."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        pass


def cpu_of(pid):
    """Seconds of processor that a process has had, all threads together."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_of(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1_024


class Terminal:
    """A program in a pseudo terminal, whose output is read as it comes."""

    def __init__(self, words, env):
        self.started = time.monotonic()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(env)
            time.sleep(0.02)
            os.execvp(words[0], words)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.chunks = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        while True:
            try:
                data = os.read(self.fd, 65_536)
            except OSError:
                return
            if not data:
                return
            self.chunks.append((time.monotonic(), data))

    def key(self, text):
        os.write(self.fd, text.encode())

    def written(self, since, until=float("inf")):
        return sum(len(data) for at, data in list(self.chunks) if since <= at < until)

    def first_after(self, moment, sign=b"", limit=5.0):
        """When the first output after a moment was there, that holds a sign."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            seen = b""
            for at, data in list(self.chunks):
                if at >= moment:
                    seen += data
                    if sign in seen:
                        return at - moment
            time.sleep(0.001)
        return None

    def end(self):
        try:
            os.kill(self.pid, signal.SIGTERM)
            for _ in range(50):
                if os.waitpid(self.pid, os.WNOHANG)[0]:
                    break
                time.sleep(0.05)
            else:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        os.close(self.fd)


def frames(terminal, since):
    """Bytes of each frame that ends a synchronized update, after a moment."""
    sizes, open_bytes = [], b""
    for at, data in list(terminal.chunks):
        if at < since:
            continue
        open_bytes += data
        while END_OF_FRAME in open_bytes:
            frame, open_bytes = open_bytes.split(END_OF_FRAME, 1)
            sizes.append(len(frame) + len(END_OF_FRAME))
    return sizes


def first_frame(words, env, sign):
    times = []
    for _ in range(7):
        terminal = Terminal(words, env)
        # The child sleeps for 20 ms until its window has its size.
        took = terminal.first_after(terminal.started, sign)
        if took is not None:
            times.append((took - 0.02) * 1_000)
        terminal.end()
    return statistics.median(times) if times else None


def measure(name, words, env, sign=b"\x1b["):
    first = first_frame(words, env, sign)
    terminal = Terminal(words, env)
    time.sleep(WARM_UP)
    since, cpu = time.monotonic(), cpu_of(terminal.pid)
    time.sleep(SECONDS)
    share = (cpu_of(terminal.pid) - cpu) / SECONDS * 100
    rate = terminal.written(since) / SECONDS / 1_024
    first_text = "?" if first is None else f"{first:.1f}"
    print(f"{name:<10} first frame {first_text:>6} ms   {share:5.2f} % of a core   "
          f"{memory_of(terminal.pid):6.1f} MB   {rate:6.1f} KB/s", flush=True)
    return terminal, since


def without_screen(name, words):
    """What a program costs that fetches the same pages and draws nothing; nothing where it ends at once."""
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    time.sleep(WARM_UP)
    if process.poll() is not None:
        print(f"{name:<18} ended with {process.returncode}", flush=True)
        return
    cpu = cpu_of(process.pid)
    time.sleep(SECONDS)
    share = (cpu_of(process.pid) - cpu) / SECONDS * 100
    print(f"{name:<18} {share:5.2f} % of a core   {memory_of(process.pid):6.1f} MB", flush=True)
    process.terminate()
    process.wait()


def fetching_alone(port):
    """The pages fetched and thrown away: the part of the cost that no reader of pages can save."""
    if FETCHING is None:
        print("fetching alone is not built: cargo build --release --example fetching", flush=True)
        return
    url = f"http://127.0.0.1:{port}/metrics"
    for name, way in [("fetching alone", "client"), ("  bare sockets", "sockets")]:
        without_screen(name, [FETCHING, way, str(SOURCES), url])


def prometheus(port, home):
    """Prometheus on the same pages, each second too."""
    if PROMETHEUS is None:
        print("prometheus is not on PATH", flush=True)
        return
    config = os.path.join(home, "prometheus.yml")
    with open(config, "w") as file:
        file.write("global: {scrape_interval: 1s, scrape_timeout: 800ms}\nscrape_configs:\n")
        for number in range(SOURCES):
            file.write(f"  - job_name: g{number}\n"
                       f"    static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n")
    without_screen("prometheus", [PROMETHEUS, f"--config.file={config}",
                                  f"--storage.tsdb.path={home}/tsdb",
                                  "--web.listen-address=127.0.0.1:0"])


def main():
    home = tempfile.mkdtemp(prefix="weir-screen-")
    server = Server(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    config = os.path.join(home, "weir.toml")
    with open(config, "w") as file:
        file.write('environment = "bench"\n')
        for number in range(SOURCES):
            file.write(f'[[source]]\nname = "g{number}"\nadapter = "weir"\n'
                       f'url = "http://127.0.0.1:{port}/metrics"\n')
    env = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "HOME": home, "XDG_STATE_HOME": home}

    terminal, since = measure("weir", [WEIR, "watch", "-c", config], env, END_OF_FRAME)
    sizes = sorted(frames(terminal, since))
    if sizes:
        print(f"           frames {len(sizes)}, typical {statistics.median(sizes):.0f} B, "
              f"worst {sizes[-1]} B", flush=True)

    # A frozen screen on which nothing changes but the clock, and one whose pollers all hang.
    terminal.key("?")
    time.sleep(1.0)
    Page.hangs.set()
    time.sleep(3.0)
    waits = []
    for number in range(20):
        pressed = time.monotonic()
        terminal.key("d" if number % 2 else "t")
        took = terminal.first_after(pressed, END_OF_FRAME)
        if took is not None:
            waits.append(took * 1_000)
        time.sleep(0.2)
    if waits:
        print(f"           key to paint with every poller hanging: median {statistics.median(waits):.1f} ms, "
              f"worst {max(waits):.1f} ms", flush=True)
    terminal.end()
    Page.hangs.clear()

    fetching_alone(port)
    prometheus(port, home)

    peers = {
        "btop": ["btop", "--utf-force"],
        "htop": ["htop", "-d", "10"],
        "btm": ["btm", "-r", "1000"],
        "grafatui": ["grafatui", "--prometheus", f"http://127.0.0.1:{port}"],
    }
    for name, words in peers.items():
        if shutil.which(words[0]) is None:
            print(f"{name:<10} is not on PATH", flush=True)
            continue
        peer, _ = measure(name, words, env)
        peer.end()


main()
