//! The shipped themes: each can be read on the backgrounds that it is made for, whatever the terminal
//! shows, and those for colour-blind eyes keep states apart for such eyes.

use std::path::Path;

use ratatui::style::{Color, Modifier};
use weir::tui::Appearance;
use weir::tui::theme::{ASCII, Depth, Rgb, Role, Theme, UNICODE, indexed, names};

/// WCAG 2.2, level AA, for text.
const CONTRAST: f64 = 4.5;
/// The terminal's own sixteen are anybody's; of xterm's we ask what AA asks of large text.
const CONTRAST_OF_16: f64 = 3.0;
/// Two colours that differ by so much (CIE 1976) are told apart side by side, and by far.
const APART: f64 = 20.0;

/// xterm's own sixteen.
const XTERM: [(Color, Rgb); 16] = [
    (Color::Black, Rgb(0, 0, 0)),
    (Color::Red, Rgb(205, 0, 0)),
    (Color::Green, Rgb(0, 205, 0)),
    (Color::Yellow, Rgb(205, 205, 0)),
    (Color::Blue, Rgb(0, 0, 238)),
    (Color::Magenta, Rgb(205, 0, 205)),
    (Color::Cyan, Rgb(0, 205, 205)),
    (Color::Gray, Rgb(229, 229, 229)),
    (Color::DarkGray, Rgb(127, 127, 127)),
    (Color::LightRed, Rgb(255, 0, 0)),
    (Color::LightGreen, Rgb(0, 255, 0)),
    (Color::LightYellow, Rgb(255, 255, 0)),
    (Color::LightBlue, Rgb(92, 92, 255)),
    (Color::LightMagenta, Rgb(255, 0, 255)),
    (Color::LightCyan, Rgb(0, 255, 255)),
    (Color::White, Rgb(255, 255, 255)),
];

/// How an eye sees linear red, green and blue: Machado, Oliveira and Fernandes, 2009, at full strength.
const DEUTERANOPIA: [[f64; 3]; 3] = [
    [0.367_322, 0.860_646, -0.227_968],
    [0.280_085, 0.672_501, 0.047_413],
    [-0.011_820, 0.042_940, 0.968_881],
];
const PROTANOPIA: [[f64; 3]; 3] = [
    [0.152_286, 1.052_583, -0.204_868],
    [0.114_503, 0.786_281, 0.099_216],
    [-0.003_882, -0.048_116, 1.051_998],
];
const TRITANOPIA: [[f64; 3]; 3] = [
    [1.255_528, -0.076_749, -0.178_779],
    [-0.078_411, 0.930_809, 0.147_602],
    [0.004_733, 0.691_367, 0.303_900],
];

fn linear(Rgb(red, green, blue): Rgb) -> [f64; 3] {
    [red, green, blue].map(|channel| {
        let share = f64::from(channel) / 255.0;
        if share <= 0.040_45 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
    })
}

fn dot(row: [f64; 3], colour: [f64; 3]) -> f64 {
    row.iter().zip(colour).map(|(weight, channel)| weight * channel).sum()
}

fn luminance(colour: [f64; 3]) -> f64 {
    dot([0.2126, 0.7152, 0.0722], colour)
}

fn contrast(one: Rgb, other: Rgb) -> f64 {
    let (one, other) = (luminance(linear(one)), luminance(linear(other)));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

/// CIE L*a*b* of a colour as an eye sees it.
fn seen(colour: Rgb, eye: &[[f64; 3]; 3]) -> [f64; 3] {
    let colour = linear(colour);
    let colour = eye.map(|row| dot(row, colour).clamp(0.0, 1.0));
    let root = |share: f64| {
        if share > 216.0 / 24_389.0 {
            share.cbrt()
        } else {
            (24_389.0 / 27.0 * share + 16.0) / 116.0
        }
    };
    let x = root(dot([0.412_456_4, 0.357_576_1, 0.180_437_5], colour) / 0.950_47);
    let y = root(luminance(colour));
    let z = root(dot([0.019_333_9, 0.119_192, 0.950_304_1], colour) / 1.088_83);
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

fn apart(one: Rgb, other: Rgb, eye: &[[f64; 3]; 3]) -> f64 {
    let (one, other) = (seen(one, eye), seen(other, eye));
    one.iter().zip(other).map(|(left, right)| (left - right).powi(2)).sum::<f64>().sqrt()
}

fn rgb(colour: Color) -> Rgb {
    match colour {
        Color::Rgb(red, green, blue) => Rgb(red, green, blue),
        Color::Indexed(index) => indexed(index),
        named => XTERM.iter().find(|(known, _)| *known == named).expect("one of sixteen").1,
    }
}

fn theme(name: &str) -> Theme {
    Theme::shipped(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn every_text_can_be_read_on_every_background_that_its_theme_is_made_for() {
    for name in names() {
        let theme = theme(name);
        assert!(!theme.about.is_empty() && !theme.backgrounds.is_empty(), "{name}");
        let strict = if name == "high-contrast" { 7.0 } else { CONTRAST };
        for (depth, least) in
            [(Depth::TrueColor, strict), (Depth::Ansi256, strict), (Depth::Ansi16, CONTRAST_OF_16)]
        {
            let styles = theme.styles(depth);
            for role in Role::ALL {
                // Without a colour of its own it has the terminal's, which the person chose.
                let Some(colour) = styles.of(role).fg else { continue };
                for background in &theme.backgrounds {
                    let found = contrast(rgb(colour), *background);
                    assert!(found >= least, "{name} {depth:?} {role:?} {background:?}: {found:.2}");
                }
            }
        }
        for role in [Role::Ok, Role::Warn, Role::Crit, Role::Unknown, Role::Accent, Role::Dim] {
            assert!(theme.styles(Depth::TrueColor).of(role).fg.is_some(), "{name} {role:?}");
        }
    }
}

#[test]
fn the_row_under_the_cursor_shows_in_every_theme_and_depth() {
    for name in names() {
        for depth in [Depth::Mono, Depth::Ansi16, Depth::Ansi256, Depth::TrueColor] {
            let style = theme(name).styles(depth).of(Role::Selected);
            assert!(style.add_modifier.contains(Modifier::REVERSED), "{name} {depth:?}");
        }
    }
}

#[test]
fn colour_blind_eyes_tell_good_bad_and_worse_apart() {
    let eyes: [(&str, &[[[f64; 3]; 3]]); 4] = [
        ("deuteranopia", &[DEUTERANOPIA, PROTANOPIA]),
        ("deuteranopia-light", &[DEUTERANOPIA, PROTANOPIA]),
        ("tritanopia", &[TRITANOPIA]),
        ("tritanopia-light", &[TRITANOPIA]),
    ];
    for (name, eyes) in eyes {
        for depth in [Depth::TrueColor, Depth::Ansi256] {
            let styles = theme(name).styles(depth);
            let of = |role| rgb(styles.of(role).fg.expect("a colour"));
            for (one, other) in
                [(Role::Ok, Role::Warn), (Role::Ok, Role::Crit), (Role::Warn, Role::Crit)]
            {
                for eye in eyes {
                    let found = apart(of(one), of(other), eye);
                    assert!(found >= APART, "{name} {depth:?} {one:?} {other:?}: {found:.1}");
                }
            }
        }
    }
    // The measure finds what it is for: red and green of equal lightness.
    let (red, green) = (Rgb(0xb0, 0x50, 0x30), Rgb(0x70, 0x70, 0x30));
    assert!(apart(red, green, &DEUTERANOPIA) < APART);
}

#[test]
fn a_state_has_a_mark_of_its_own_in_both_sets_of_glyphs() {
    for glyphs in [&UNICODE, &ASCII] {
        let look = Appearance { depth: Depth::Mono, glyphs };
        let states = [Role::Ok, Role::Warn, Role::Crit, Role::Unknown, Role::Stale];
        let mut marks = states.map(|role| look.mark(role)).to_vec();
        marks.sort_unstable();
        marks.dedup();
        assert_eq!(marks.len(), states.len(), "{marks:?}");
        assert!(marks.iter().all(|mark| mark.chars().count() == 1 && *mark != " "), "{marks:?}");
    }
}

#[test]
fn every_theme_in_the_folder_ships_and_is_in_its_table() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/themes");
    let table = std::fs::read_to_string(folder.join("README.md")).expect("a README");
    let mut found: Vec<String> = std::fs::read_dir(&folder)
        .expect("a folder")
        .filter_map(|entry| {
            let name = entry.expect("readable").file_name().into_string().expect("UTF-8");
            name.strip_suffix(".toml").map(str::to_owned)
        })
        .collect();
    found.sort();
    let mut shipped = names();
    shipped.sort_unstable();
    assert_eq!(found, shipped);
    for name in shipped {
        assert!(table.contains(&format!("`{name}`")), "{name}");
    }
}
