//! `weir config` and `weir init`: the template knows every key, the schema takes what weir takes, and a
//! first file is written only where none is.

mod pages;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Keys that only a drill has.
const OF_DRILLS: [&str; 3] = ["seed", "drill", "faults"];

fn weir(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(arguments)
        .current_dir(folder)
        .env("XDG_STATE_HOME", folder.join("state"))
        .env_remove("WEIR_CONFIG")
        .env_remove("WEIR_ADMIN_TOKEN")
        .stdin(Stdio::null())
        .output()
        .expect("weir starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn printed(arguments: &[&str]) -> String {
    let output = weir(Path::new("."), arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// The template with every key in force.
fn uncommented() -> String {
    let template = printed(&["config", "template"]);
    let lines = template.lines().map(|line| match line.strip_prefix('#') {
        Some(key) if !key.starts_with(' ') && !key.is_empty() => key,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

fn schema() -> Value {
    serde_json::from_str(&printed(&["config", "schema"])).expect("JSON")
}

#[test]
fn the_template_as_it_stands_says_nothing() {
    let template: toml::Table = printed(&["config", "template"]).parse().expect("TOML");
    assert!(template.is_empty(), "{template}");
}

#[test]
fn the_template_knows_every_key_and_only_keys_that_there_are() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("all.toml"), uncommented()).expect("written");
    // All keys are known: what is wrong is only that they cannot all stand together.
    let output = weir(folder.path(), &["config", "check", "-c", "all.toml"]);
    let said = text(&output.stderr);
    assert!(!said.contains("unknown field") && said.contains("`source[0]"), "{said}");
    let template = uncommented();
    let words: BTreeSet<&str> = template
        .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .filter(|word| !word.is_empty())
        .collect();
    let schema = schema();
    let definitions = schema["$defs"].as_object().expect("definitions");
    let objects =
        definitions.iter().filter(|(name, _)| !name.ends_with("Fault") && *name != "GateFaults");
    for (name, definition) in objects.map(|(name, one)| (name.as_str(), one)).chain([("", &schema)])
    {
        let keys = definition["properties"].as_object().into_iter().flatten();
        for (key, _) in keys.filter(|(key, _)| !OF_DRILLS.contains(&key.as_str())) {
            assert!(words.contains(key.as_str()), "{name}.{key} is not in the template");
        }
    }
}

#[test]
fn what_the_template_shows_is_the_default_where_there_is_one() {
    let template = uncommented();
    let schema = schema();
    let definitions = schema["$defs"].as_object().expect("definitions");
    let mut checked = 0;
    let objects =
        definitions.iter().filter(|(name, _)| !name.ends_with("Fault") && *name != "GateFaults");
    for (name, definition) in objects.map(|(name, one)| (name.as_str(), one)).chain([("", &schema)])
    {
        let keys = definition["properties"].as_object().into_iter().flatten();
        for (key, property) in keys.filter(|(key, _)| !OF_DRILLS.contains(&key.as_str())) {
            let default = &property["default"];
            let is_shown = default.is_boolean() || default.is_number() || default.is_string();
            if !is_shown {
                continue;
            }
            checked += 1;
            let (whole, inline) = (format!("\n{key} = {default}\n"), format!("{key} = {default} "));
            let is_there = template.contains(&whole) || template.contains(&inline);
            assert!(is_there, "{name}.{key}: the template does not show {default}");
        }
    }
    assert!(checked > 10, "only {checked} defaults were found");
}

#[test]
fn the_schema_takes_every_configuration_of_the_documents_and_no_unknown_key() {
    let validator = jsonschema::validator_for(&schema()).expect("a schema");
    let json = |text: &str| -> Value {
        let table: toml::Table = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
        serde_json::to_value(table).expect("JSON")
    };
    assert!(validator.is_valid(&json(&uncommented())), "the whole template");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut seen = 0;
    for document in documents(root) {
        let page = std::fs::read_to_string(&document).expect("a page");
        for block in page.split("\n```toml\n").skip(1) {
            let block = block.split("\n```").next().unwrap_or_default();
            // Some blocks are of other files: only those whose tables are weir.toml's are meant.
            let value = json(block);
            let known = ["source", "flags", "scope", "gateway", "alertmanager", "ui", "keys"];
            if !value
                .as_object()
                .is_some_and(|keys| keys.keys().any(|key| known.contains(&key.as_str())))
            {
                continue;
            }
            seen += 1;
            let mut value = value;
            // A part of [gateway] is shown in places; what it cannot do without stands elsewhere.
            if let Some(gateway) = value.get_mut("gateway").and_then(Value::as_object_mut) {
                for key in ["listen", "admin_listen", "upstream"] {
                    gateway.entry(key).or_insert_with(|| Value::from("x"));
                }
            }
            let wrong: Vec<String> =
                validator.iter_errors(&value).map(|error| error.to_string()).collect();
            assert!(wrong.is_empty(), "{}: {wrong:?}\n{block}", document.display());
        }
    }
    assert!(seen >= 5, "only {seen} examples were found");
    for wrong in
        ["enviroment = 'x'", "[[source]]\nname = 'a'", "[ui]\ntheme = 4", "[keys]\nfreeze = 'x'"]
    {
        assert!(!validator.is_valid(&json(wrong)), "{wrong}");
    }
}

fn documents(root: &Path) -> Vec<std::path::PathBuf> {
    let docs = std::fs::read_dir(root.join("docs")).expect("docs");
    let docs = docs.map(|entry| entry.expect("readable").path());
    let pages = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.chain([root.join("README.md"), root.join("assets/themes/README.md")]).collect()
}

#[test]
fn a_check_names_what_is_wrong_and_says_what_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let check = |lines: &str| {
        let source =
            "[[source]]\nname = 'a'\nadapter = 'weir'\nurl = 'http://127.0.0.1:1/metrics'\n";
        std::fs::write(folder.path().join("weir.toml"), format!("{source}{lines}"))
            .expect("written");
        let output = weir(folder.path(), &["config", "check"]);
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let (code, said) = check("[ui]\ntheme = 'tritanopia'\n[keys]\nfreeze = ['f7']\n");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("nothing is wrong") && said.contains("1 sources: a"), "{said}");
    for (lines, place, words) in [
        ("[ui]\ntheme = 'mauve'", "weir.toml:6:1: `ui.theme`", "name one of dark, light"),
        ("[ui]\ntheme = 'mauve.toml'", "mauve.toml", "name one of dark, light"),
        ("[ui]\nthem = 'dark'", "weir.toml:6:", "theme"),
        ("[keys]\nfreeze = ['d']", "weir.toml:6:1: `keys.freeze`", "d is `diagnose`"),
        ("[keys]\nfreeze = ['ctrl-b']", "weir.toml:6:1: `keys.freeze`", "take another"),
        ("[keys]\nfreezer = ['x']", "weir.toml:6:1: `keys.freezer`", "weir keys"),
        ("[gateway]\nlisten = 'x'\nadmin_listen = 'y'\nupstream = 'z'", "weir.toml:", "gateway."),
    ] {
        let (code, said) = check(lines);
        assert_eq!(code, Some(1), "{lines}: {said}");
        assert!(said.contains(place) && said.contains(words), "{lines}: {said}");
    }
}

#[test]
fn a_first_file_is_written_from_what_answers_and_never_over_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = pages::serve(|| {
        Some(b"# TYPE weir_originals_total counter\nweir_originals_total 1\n".to_vec())
    });
    let file = folder.path().join("weir.toml");
    let asks = weir(folder.path(), &["init", "--page", &page]);
    assert_eq!(asks.status.code(), Some(2));
    assert!(text(&asks.stderr).contains("--yes") && !file.exists());
    let done = weir(folder.path(), &["init", "--yes", "--page", &page]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert!(text(&done.stderr).contains(&format!("weir at {page}")), "{}", text(&done.stderr));
    let written = std::fs::read_to_string(&file).expect("written");
    assert!(
        written.contains(&format!("url = \"{page}\"")) && written.contains("#[flags]"),
        "{written}"
    );
    let check = weir(folder.path(), &["config", "check"]);
    assert_eq!(check.status.code(), Some(0), "{}", text(&check.stderr));
    let again = weir(folder.path(), &["init", "--yes", "--page", &page]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("was left alone"), "{}", text(&again.stderr));
    assert_eq!(std::fs::read_to_string(&file).expect("still there"), written);
}

#[test]
fn watch_without_a_file_and_without_a_terminal_says_how_to_make_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = weir(folder.path(), &["watch"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("weir init --yes") && said.contains("weir config template"), "{said}");
    assert!(!folder.path().join("weir.toml").exists());
}
