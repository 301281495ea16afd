//! The blocks of a page.

use anyhow::{Result, bail};

/// A block of commands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block {
    /// The commands.
    pub(crate) script: String,
    /// Lines that they print, each whole or in part, in this order.
    pub(crate) prints: Vec<String>,
}

/// The blocks of one page.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// Those that run, in order.
    pub(crate) blocks: Vec<Block>,
    /// How many are marked as blocks that do not.
    pub(crate) marked: usize,
}

impl Page {
    /// Reads a page.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut page = Self::default();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let Some(word) = line.trim_start().strip_prefix("```") else { continue };
            let inside: Vec<&str> = lines.by_ref().take_while(|line| line.trim_start() != "```").collect();
            match word {
                "sh" => page.blocks.push(Block { script: inside.join("\n"), prints: Vec::new() }),
                "sh,norun" => page.marked += 1,
                "text" => match page.blocks.last_mut() {
                    Some(block) => block.prints.extend(inside.iter().map(|line| (*line).to_owned())),
                    None => bail!("nothing prints this: {}", inside.join("\n")),
                },
                other if other.starts_with("sh") => bail!("no such kind of block: {other}"),
                _ => {}
            }
        }
        Ok(page)
    }
}
