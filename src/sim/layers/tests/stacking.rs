//! How layers are written, and what a stack of them does: places, counts, scopes, queues.

use super::*;

#[test]
fn every_shipped_client_is_right_and_called_by_its_file() {
    for name in client_names() {
        let stack = client(name, "");
        assert!((1..=3).contains(&stack.names().count()), "{name}");
    }
}

fn wrong(text: &str, expected: &str) {
    let error = parse(text).expect_err(text);
    assert!(error.contains(expected), "{text}\n{error}");
}

#[test]
fn what_is_wrong_is_named_with_what_is_allowed() {
    wrong(
        "[[layers]]\nuse = 'open-ai'",
        "`layers[0].use`: no client `open-ai`; there are openai-python, ",
    );
    wrong("[[layers]]\nuse = 'mine.toml'", "no file mine.toml here");
    wrong("[[layers]]\ntries = 3", "`layers[0].name`: missing");
    wrong(
        "[[layers]]\nuse = 'openai-python'\ntries = 101",
        "`layers[0].tries`: 101 is out of bounds",
    );
    wrong(
        "[[layers]]\nuse = 'openai-python'\ntrys = 1",
        "unknown field `trys`, expected one of `use`, `name`",
    );
    wrong("[[layers]]\nname = 'a'\nretries = ['all']", "`all` is no failure, expected \"429\"");
    wrong(
        "[[layers]]\nname = 'a'\njitter = 'some'",
        "unknown variant `some`, expected one of `none`",
    );
    wrong(
        "[[layers]]\nname = 'a'\njitter = { minus = 2 }",
        "`layers[0].jitter.minus`: 2 is out of bounds",
    );
    wrong("[[layers]]\nname = 'a'\njitter = { times = [2, 1] }", "the smaller first");
    wrong(
        "[[layers]]\nname = 'a'\nhint_garbage = 'clamp'",
        "`layers[0].hint_garbage`: garbage has no length",
    );
    wrong(
        "[[layers]]\nname = 'a'\nstops_codes = ['broke']",
        "unknown variant `broke`, expected one of `insufficient_quota`",
    );
    wrong(
        "[[layers]]\nname = 'a'\nsticky = true",
        "`layers[0].sticky`: there is nowhere to fall back to",
    );
    wrong(
        "[[layers]]\nuse = 'tenacity'\ntimeout_s = 1\n[[layers]]\nuse = 'httpx'",
        "`layers[0].timeout_s`: no request is made here",
    );
    wrong(
        "[[layers]]\nuse = 'tenacity'\n[[layers]]\nuse = 'tenacity'",
        "`layers[1].name`: two layers are called `tenacity`",
    );
    wrong(
        "[[layers]]\nuse = 'llama-index'\nwith = { sdk = { tries = 1 } }",
        "no layer `sdk`, only llama-index, openai-python",
    );
    wrong("layers = []", "`layers`: 0 layers; stack 1 to 8 layers");
    wrong("layers = 3", "expected a list of layers, or the tables sdk, wrapper and frontend");
    wrong("[layers]\nsdk = { tries = 0 }", "`layers.sdk.tries`: 0 is out of bounds");
    wrong("[layers]\nskd = { tries = 1 }", "unknown field `skd`");
    let nine = (0..9).map(|n| format!("[[layers]]\nname = 'l{n}'\n")).collect::<Vec<_>>().concat();
    wrong(&nine, "9 layers; stack 1 to 8 layers");
    parse(nine.trim_end_matches("[[layers]]\nname = 'l8'\n")).expect("eight are allowed");
}

#[test]
fn a_client_by_path_builds_on_others_but_never_on_itself() {
    let read = |path: &str| match path {
        "mine.toml" => Ok("name = 'mine'\ntitle = ''\nsource = ''\nmeasured = ''\n\
                           [[layers]]\ntries = 2\n[[layers]]\nuse = 'openai-python'\ntries = 4"
            .to_owned()),
        _ => Ok("name = 'loop'\ntitle = ''\nsource = ''\nmeasured = ''\n\
                 [[layers]]\nuse = 'loop.toml'"
            .to_owned()),
    };
    let stack = |text: &str| {
        let file: File = toml::from_str(text).expect("fits");
        file.layers.stack("layers", &read)
    };
    let mine = stack("[[layers]]\nuse = 'mine.toml'").expect("right");
    assert_eq!(mine.names().collect::<Vec<_>>(), ["mine", "openai-python"]);
    assert_eq!(run(&mine, 1, Input::Answer(refusal(429))).attempts(), 8);
    let endless = stack("[[layers]]\nuse = 'loop.toml'").expect_err("it uses itself");
    assert!(endless.to_string().contains("goes round or too deep"), "{endless}");
}

#[test]
fn keys_beside_use_change_the_outermost_layer_and_with_the_others() {
    let stack = client(
        "llama-index",
        "name = 'embedder'\ntries = 1\nwith = { openai-python = { tries = 2, timeout_s = 9 } }",
    );
    assert_eq!(stack.names().collect::<Vec<_>>(), ["embedder", "openai-python"]);
    assert_eq!(run(&stack, 1, Input::Answer(refusal(429))).attempts(), 2);
    assert_eq!(stack.request_timeout(), Some(std::time::Duration::from_secs(9)));
}

#[test]
fn calls_are_counted_by_layer() {
    let stack = client("langchain-with-retry", "");
    let run = run(&stack, 1, Input::Answer(refusal(429)));
    let calls: Vec<_> = run.calls.by_layer(&stack).collect();
    assert_eq!(calls, [("langchain-with-retry", 3, 0), ("openai-python", 9, 3)]);
    assert_eq!((run.calls.requests(), run.end), (9, Step::Failed));
}

#[test]
fn a_queue_delivers_again_when_the_visibility_timeout_has_passed() {
    let text =
        "[[layers]]\nuse = 'job-queue'\ntries = 2\n[[layers]]\nuse = 'pgai'\njitter = 'none'";
    let run = run(&parse(text).expect("right"), 1, Input::Answer(refusal(429)));
    assert_eq!(run.attempts(), 8);
    // 0.5 + 1 + 2 s of the SDK pass before the job has failed.
    assert_eq!(run.waits_s, [0.5, 1.0, 2.0, 26.5, 0.5, 1.0, 2.0]);
}

#[test]
fn a_person_asks_again_now_and_then() {
    let stack = parse("[[layers]]\nuse = 'frontend'\n[[layers]]\nuse = 'httpx'").expect("right");
    let asked = |seed| run(&stack, seed, Input::Answer(refusal(400))).attempts();
    let again = (0..2_000).filter(|seed| asked(*seed) == 2).count();
    assert!((340..=460).contains(&again), "400 of 2,000 expected, {again} did");
}

fn scopes(text: &str) -> Vec<String> {
    let stack = parse(text).expect("right");
    let run = run(&stack, 1, Input::Answer(refusal(429)));
    let name =
        |place: &Place| place.scope.map_or_else(String::new, |scope| stack.scopes()[scope].clone());
    run.sends.iter().map(name).collect()
}

#[test]
fn a_fallback_walks_its_scopes_and_goes_round_if_told() {
    let walk = "[[layers]]\nuse = 'fallback'\nto = ['a', 'b']\n";
    let inner = "[[layers]]\nuse = 'httpx'\n";
    assert_eq!(scopes(&format!("{walk}{inner}")), ["a", "b"]);
    assert_eq!(scopes(&format!("{walk}passes = 2\n{inner}")), ["a", "b", "a", "b"]);
    assert_eq!(scopes(inner), [""]);
    let retried = "[[layers]]\nuse = 'tenacity'\ntries = 2\n";
    assert_eq!(scopes(&format!("{retried}{walk}{inner}")), ["a", "b", "a", "b"]);
    assert_eq!(scopes(&format!("{retried}{walk}sticky = true\n{inner}")), ["a", "b", "b", "a"]);
}

#[test]
fn silence_is_repeated_by_those_who_name_it() {
    let attempts = |name, input| run(&client(name, ""), 1, input).attempts();
    assert_eq!(attempts("openai-python", Input::TimedOut), 3);
    assert_eq!(attempts("openai-python", Input::TransportError), 3);
    assert_eq!(attempts("voyage-retrying", Input::TimedOut), 3);
    assert_eq!(attempts("voyage-retrying", Input::TransportError), 1);
    assert_eq!(attempts("cohere", Input::TransportError), 1);
}

#[test]
fn the_tables_of_old_are_a_stack_of_three() {
    let same = parse("[layers]\nwrapper = { deaf = true }").expect("right");
    let wrapper = WrapperConfig { deaf: true, ..WrapperConfig::default() };
    let config = LayersConfig { wrapper, ..LayersConfig::default() };
    assert_eq!(same, Stack::from(&config));
    assert_eq!(same.names().collect::<Vec<_>>(), ["frontend", "wrapper", "sdk"]);
    assert_eq!(Layers::default().stack("layers", &no_files), Ok(Stack::default()));
}
