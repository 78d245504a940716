//! The terminal: entered once, left once, whatever ends the program.
//!
//! Drop, the panic hook and the signal arms all come to [`restore`], which acts once. Frames are
//! collected and written in one piece, inside a synchronized update; after [`restore`] nothing is
//! written any more, so a half-drawn frame cannot follow the shell's prompt.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};

use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
};
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute, queue};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::{Position, Rect};
use ratatui::{Frame, Terminal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpid, kill_process};

use crate::tui::app::Mouse;
use crate::tui::session::Error;

static ENTERED: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// The terminal while the dashboard has it.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<FrameWriter>>,
    frame: FrameWriter,
    /// What stands on the terminal is not what was drawn last.
    unknown: bool,
    mouse: Mouse,
    /// The next word that the process goes on is about a stop of its own.
    stopped_itself: bool,
}

impl Screen {
    /// Takes the terminal: raw mode, alternate screen, bracketed paste. The mouse stays the user's until
    /// it is asked for.
    ///
    /// # Errors
    /// [`Error::NoTerminal`] when standard output is not one.
    pub fn enter() -> Result<Self, Error> {
        if !io::stdout().is_terminal() {
            return Err(Error::NoTerminal);
        }
        // NO_COLOR is honoured by the palette; the library's own way drops bold and reverse as well.
        crossterm::style::force_color_output(true);
        HOOK.call_once(|| {
            let previous = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                restore();
                previous(info);
            }));
        });
        take()?;
        let frame = FrameWriter::default();
        let terminal = Terminal::new(CrosstermBackend::new(frame.clone()))?;
        Ok(Self { terminal, frame, unknown: false, mouse: Mouse::Terminal, stopped_itself: false })
    }

    /// Draws one frame and writes what changed in one piece.
    ///
    /// # Errors
    /// The terminal's; it is gone then.
    pub fn draw(&mut self, view: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        // A task that panicked has given the terminal back for its report, and the dashboard goes on.
        if !ENTERED.load(Ordering::SeqCst) {
            self.take_again()?;
        }
        queue!(self.frame, BeginSynchronizedUpdate)?;
        if std::mem::take(&mut self.unknown) {
            // The library's `clear` asks the terminal where its cursor is, and gets no answer while
            // events are read.
            let size = self.terminal.size()?;
            self.terminal.resize(Rect::from((Position::ORIGIN, size)))?;
        }
        self.terminal.draw(view)?;
        queue!(self.frame, EndSynchronizedUpdate)?;
        self.frame.present()
    }

    /// The terminal has had another size, if only for a moment, and may have lost what stood on it.
    pub const fn resized(&mut self) {
        self.unknown = true;
    }

    /// Gives the terminal back, stops the process, and takes the terminal again when it continues.
    ///
    /// # Errors
    /// The terminal's, on coming back.
    pub fn suspend(&mut self) -> io::Result<()> {
        restore();
        self.stopped_itself = true;
        kill_process(getpid(), Signal::STOP)?;
        self.take_again()
    }

    /// The process goes on. Whoever stopped it from outside has used the terminal since then.
    ///
    /// # Errors
    /// The terminal's.
    pub fn continued(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.stopped_itself) {
            return Ok(());
        }
        restore();
        self.take_again()
    }

    fn take_again(&mut self) -> io::Result<()> {
        self.unknown = true;
        self.mouse = Mouse::Terminal;
        take()
    }

    /// Asks the terminal for the mouse, or leaves it to the person, with the next frame.
    ///
    /// # Errors
    /// Those of the frame that is collected.
    pub fn set_mouse(&mut self, wanted: Mouse) -> io::Result<()> {
        if std::mem::replace(&mut self.mouse, wanted) == wanted {
            return Ok(());
        }
        match wanted {
            Mouse::Weir => queue!(self.frame, EnableMouseCapture),
            Mouse::Terminal => queue!(self.frame, DisableMouseCapture),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    ENTERED.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste, cursor::Hide)
}

/// Gives the terminal back. Only the first call after an [`Screen::enter`] acts.
pub fn restore() {
    if !ENTERED.swap(false, Ordering::SeqCst) {
        return;
    }
    // Nothing can be done about errors here: the terminal may be gone.
    let _ = execute!(
        io::stdout(),
        EndSynchronizedUpdate,
        DisableMouseCapture,
        DisableBracketedPaste,
        LeaveAlternateScreen,
        cursor::Show
    );
    let _ = disable_raw_mode();
}

/// Whether the terminal has hung up. Looks without reading.
///
/// The event library does not notice a vanished terminal and spins on it, so this is asked every second.
#[must_use]
pub fn is_lost() -> bool {
    let stdin = rustix::stdio::stdin();
    let mut descriptors = [PollFd::new(&stdin, PollFlags::empty())];
    match poll(&mut descriptors, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(_) => descriptors[0].revents().intersects(PollFlags::HUP | PollFlags::ERR),
        Err(_) => false,
    }
}

/// Collects a frame; [`FrameWriter::present`] writes it. Clones share the frame.
#[derive(Clone, Default)]
struct FrameWriter(Arc<Mutex<Vec<u8>>>);

impl FrameWriter {
    fn present(&self) -> io::Result<()> {
        let frame = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if !ENTERED.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(&frame)?;
        stdout.flush()
    }
}

impl Write for FrameWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// The library flushes in the middle of a frame; the frame is written when it is whole.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
