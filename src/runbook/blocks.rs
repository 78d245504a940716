//! Cuts a runbook's Markdown into its title, its head block and its steps. Knows no TOML key.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Parser, Tag, TagEnd};

/// A fenced block that weir runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The TOML inside.
    pub(super) text: String,
    /// Line of its first line of TOML, from 1.
    pub(super) line: usize,
}

/// One `## id — title` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) line: usize,
    pub(super) prose: String,
    pub(super) blocks: Vec<Block>,
}

/// A runbook's text in parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sections {
    pub(super) title: String,
    /// What stands above the first section.
    pub(super) intro: String,
    pub(super) heads: Vec<Block>,
    pub(super) nodes: Vec<Section>,
}

const HEAD: &str = "toml weir.runbook";
const NODE: &str = "toml weir.node";

/// Line number, from 1, of a byte offset.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    let end = offset.min(text.len());
    1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..end]).count()
}

/// Cuts the text. Sections and blocks that weir does not know stay prose.
pub(super) fn cut(text: &str) -> Sections {
    let mut sections = Sections::default();
    let mut heading: Option<(HeadingLevel, String, usize)> = None;
    let mut block: Option<(bool, Option<Block>)> = None;
    let mut prose: Vec<Range<usize>> = Vec::new();
    let mut prose_from = 0;
    for (event, range) in Parser::new(text).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { level, .. }) => {
                match level {
                    HeadingLevel::H1 if sections.title.is_empty() => {
                        prose.push(prose_from..range.start);
                    }
                    HeadingLevel::H2 => {
                        close(text, &mut sections, &mut prose, prose_from..range.start);
                    }
                    _ => {}
                }
                heading = Some((level, String::new(), line_of(text, range.start)));
            }
            Event::End(TagEnd::Heading(_)) => {
                if let Some((level, words, line)) = heading.take() {
                    let is_title = level == HeadingLevel::H1 && sections.title.is_empty();
                    open(&mut sections, level, &words, line);
                    if is_title || level == HeadingLevel::H2 {
                        prose_from = range.end;
                    }
                }
            }
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                let head = info.trim() == HEAD;
                if head || info.trim() == NODE {
                    prose.push(prose_from..range.start);
                    prose_from = range.end;
                    block = Some((head, None));
                }
            }
            Event::End(TagEnd::CodeBlock) => {
                if let Some((head, found)) = block.take() {
                    let empty = Block { text: String::new(), line: line_of(text, range.start) };
                    let found = found.unwrap_or(empty);
                    if head {
                        sections.heads.push(found);
                    } else if let Some(node) = sections.nodes.last_mut() {
                        node.blocks.push(found);
                    }
                }
            }
            Event::Text(words) | Event::Code(words) => {
                if let Some((_, text, _)) = &mut heading {
                    text.push_str(&words);
                } else if let Some((_, found)) = &mut block {
                    let line = line_of(text, range.start);
                    let found = found.get_or_insert(Block { text: String::new(), line });
                    found.text.push_str(&words);
                }
            }
            _ => {}
        }
    }
    close(text, &mut sections, &mut prose, prose_from..text.len());
    sections
}

fn open(sections: &mut Sections, level: HeadingLevel, words: &str, line: usize) {
    let words = words.trim();
    match level {
        HeadingLevel::H1 if sections.title.is_empty() => words.clone_into(&mut sections.title),
        HeadingLevel::H2 => {
            let (id, title) = words
                .split_once(" — ")
                .or_else(|| words.split_once(" - "))
                .unwrap_or((words, words));
            sections.nodes.push(Section {
                id: id.trim().to_owned(),
                title: title.trim().to_owned(),
                line,
                prose: String::new(),
                blocks: Vec::new(),
            });
        }
        _ => {}
    }
}

/// Gives the collected prose to the section that ends here.
fn close(text: &str, sections: &mut Sections, prose: &mut Vec<Range<usize>>, last: Range<usize>) {
    prose.push(last);
    let parts: Vec<&str> = prose
        .drain(..)
        .filter_map(|range| text.get(range))
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect();
    let prose = parts.join("\n\n");
    match sections.nodes.last_mut() {
        Some(node) => node.prose = prose,
        None => sections.intro = prose,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Title\n\nIntro.\n\n```toml weir.runbook\nid = \"x\"\n```\n\n\
        ## first — Which one?\n\nLook at `it`.\n\n```toml weir.node\nkind = \"end\"\n```\n\nAfter.\n\n\
        ```sh\nls\n```\n";

    #[test]
    fn sections_blocks_and_prose_are_cut() {
        let sections = cut(TEXT);
        assert_eq!((sections.title.as_str(), sections.intro.as_str()), ("Title", "Intro."));
        assert_eq!(sections.heads[0], Block { text: "id = \"x\"\n".to_owned(), line: 6 });
        let node = &sections.nodes[0];
        assert_eq!((node.id.as_str(), node.title.as_str()), ("first", "Which one?"));
        assert_eq!(node.line, 9);
        assert_eq!(node.blocks[0].line, 14);
        assert_eq!(node.prose, "Look at `it`.\n\nAfter.\n\n```sh\nls\n```");
    }

    #[test]
    fn odd_text_is_cut_without_panic() {
        for text in ["", "##", "## a\n```toml weir.node", "```toml weir.node\n```", "# é\n## ü — ö"]
        {
            let _ = cut(text);
        }
    }
}
