//! Files that were cut short, changed, or never were recordings.

use std::io::Write as _;

use super::*;

/// Opens a file and reads all of it: how many looks came out, or the error in words.
fn all_of(path: &std::path::Path) -> Result<usize, String> {
    let mut replay = open(path).map_err(|error| error.to_string())?;
    let (first, last) = replay.span().map_err(|error| error.to_string())?;
    replay.seek(last).map_err(|error| error.to_string())?;
    replay.seek(first).map_err(|error| error.to_string())?;
    let mut looks = 1;
    while replay.step().map_err(|error| error.to_string())?.is_some() {
        looks += 1;
    }
    Ok(looks)
}

#[test]
fn cut_at_every_byte_it_holds_every_look_that_was_whole() {
    let recorded = record(4, "acme");
    let good = std::fs::read(&recorded.path).expect("a file");
    let reader = Reader::open(&recorded.path).expect("whole");
    let ends: Vec<usize> = reader
        .entries()
        .iter()
        .filter(|entry| entry.head.kind == super::super::frame::FrameKind::More)
        .map(|entry| usize::try_from(entry.offset).expect("small") + 56 + entry.head.packed_bytes)
        .collect();
    let path = recorded.folder.path().join("cut.weir");
    for length in 0..=good.len() {
        std::fs::write(&path, &good[..length]).expect("a file");
        let expected = ends.iter().filter(|end| **end <= length).count();
        match all_of(&path) {
            Ok(looks) => assert_eq!(looks, expected, "{length} bytes"),
            Err(error) => {
                assert_eq!(expected, 0, "{length} bytes: {error}");
                assert!(error.contains("cut.weir"), "{error}");
            }
        }
    }
}

#[test]
fn every_changed_byte_is_an_error_that_names_file_place_and_remedy() {
    let recorded = record(3, "acme");
    let good = std::fs::read(&recorded.path).expect("a file");
    let path = recorded.folder.path().join("bad.weir");
    for place in 0..good.len() {
        let mut bad = good.clone();
        bad[place] ^= 1 << (place % 8);
        std::fs::write(&path, &bad).expect("a file");
        let Err(error) = all_of(&path) else {
            // What the dashboard never needs is noticed by whoever checks all of it.
            let info = Reader::open(&path).and_then(|reader| reader.info()).expect("readable");
            assert!(matches!(info.damage, Some(Damage::Changed { .. })), "byte {place}");
            continue;
        };
        assert!(error.contains("bad.weir"), "byte {place}: {error}");
        let is_clear = error.contains("weir recording cut")
            || error.contains("--record")
            || error.contains("newer weir");
        assert!(is_clear, "byte {place}: {error}");
    }
}

#[test]
fn what_is_before_a_fault_can_be_cut_out() {
    let recorded = record(30, "acme");
    let mut bytes = std::fs::read(&recorded.path).expect("a file");
    let reader = Reader::open(&recorded.path).expect("whole");
    let fault = reader.entries()[reader.entries().len() - 4].offset;
    bytes[usize::try_from(fault).expect("small") + 60] ^= 1;
    let path = recorded.folder.path().join("bad.weir");
    std::fs::write(&path, &bytes).expect("a file");
    let error = all_of(&path).expect_err("a changed byte");
    let until = error.split("--to ").nth(1).and_then(|rest| rest.split('s').next());
    let until: f64 = until.and_then(|text| text.parse().ok()).expect("the remedy names a time");
    let part = recorded.folder.path().join("part.weir");
    let span = (None, Some(Duration::from_secs_f64(until)));
    cut(&path, span, &part).expect("what is before");
    let beyond = (None, Some(Duration::from_secs(40)));
    let refused = cut(&path, beyond, &recorded.folder.path().join("beyond.weir"));
    assert!(matches!(refused, Err(RecordingError::Damaged { .. })), "{refused:?}");
    assert_eq!(
        all_of(&part),
        Ok(reader
            .entries()
            .iter()
            .filter(|entry| {
                entry.head.kind == super::super::frame::FrameKind::More && entry.offset < fault
            })
            .count())
    );
}

#[test]
fn other_files_are_told_what_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&[b'x'; 200]).expect("memory");
    let gzip = gzip.finish().expect("memory");
    let zstd = zstd::bulk::compress(&vec![b'x'; 1 << 20], 3).expect("memory");
    let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 100, 0, 0, 0][..], &[0; 100]].concat();
    for (name, bytes, expected) in [
        ("empty", &b""[..], "it is empty"),
        ("gzip", &gzip, "gzip"),
        ("zstd", &zstd, "not by weir"),
        ("skipped", &skipped, "not by weir"),
        ("json", b"{\"recording\":{}}\n", "it is JSON"),
        ("long json", &[b'['; 100], "it is JSON"),
        ("text", b"hello\n", "it is text"),
        ("binary", &[0; 4096], "other bytes"),
        ("zip", b"PK\x03\x04", "zip"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("a file");
        let error = Reader::open(&path).expect_err(name).to_string();
        assert!(error.contains(expected) && error.contains("--record"), "{name}: {error}");
    }
    assert!(Reader::open(folder.path()).is_err());
    assert!(Reader::open(&folder.path().join("none")).is_err());
}

#[test]
fn lines_that_no_recorder_writes_are_errors() {
    for line in [
        "{\"scrape\":{\"s\":0,\"at_ns\":1,\"took_ns\":0,\"n\":[4],\"v\":[1]}}",
        "{\"scrape\":{\"s\":9,\"at_ns\":1,\"took_ns\":0,\"n\":[],\"v\":[]}}",
        "{\"scrape\":{\"s\":0,\"at_ns\":1,\"took_ns\":0,\"n\":[1],\"v\":[]}}",
        "{\"series\":{\"s\":0,\"n\":[4294967295,4294967295],\"names\":[\"a\",\"b\"]}}",
        "{\"series\":{\"s\":0,\"n\":[2000000],\"names\":[\"a\"]}}",
        "{\"answered\":{\"s\":0,\"at_ns\":1,\"answers\":7}}",
        "{\"what\":1}",
        "not json",
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("odd.weir");
        let look = "{\"look\":{\"at_ns\":2,\"wall\":\"1970-01-01T00:00:00Z\"}}";
        let lines = format!("{line}\n{look}\n");
        std::fs::write(&path, framed(lines.as_bytes())).expect("a file");
        let error = all_of(&path).expect_err(line);
        assert!(error.contains("odd.weir, byte"), "{line}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_file_makes_the_reader_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        flips in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..6),
    ) {
        let recorded = record(2, "acme");
        let mut bad = std::fs::read(&recorded.path).expect("a file");
        for (place, mask) in flips {
            let place = usize::from(place) % bad.len();
            bad[place] ^= mask;
        }
        bad.extend(&bytes);
        let path = recorded.folder.path().join("bad.weir");
        std::fs::write(&path, &bad).expect("a file");
        let _ = all_of(&path);
        std::fs::write(&path, &bytes).expect("a file");
        prop_assert!(all_of(&path).is_err());
    }
}
