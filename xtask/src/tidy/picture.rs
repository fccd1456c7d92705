//! The picture of all crates and their top-level modules, drawn from the code.
//!
//! A module is drawn above every module of its crate that it uses. [`modules`] checks that such an order exists.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::modules::{self, Uses};
use super::{Finding, Tree, crates};

/// The file of the picture.
pub(crate) const FILE: &str = "docs/pictures/modules.svg";

const WIDTH: usize = 1080;
const MARGIN: usize = 16;
/// The width of a letter of a module's name, in pixels.
const LETTER: usize = 7;
const BOX_HEIGHT: usize = 24;
const ROW_HEIGHT: usize = 34;
const TITLE_HEIGHT: usize = 46;

/// Checks that the picture is up to date with the code.
pub(super) fn up_to_date(tree: &Tree) -> Vec<Finding> {
    // A cycle has no order, and is reported by another check.
    let Some(picture) = draw(tree) else { return Vec::new() };
    let is_same = tree.text(FILE) == Some(picture.as_str());
    let stale =
        || Finding::new(FILE, 0, "it shows other code: draw it with `cargo xtask picture`".to_owned());
    if is_same { Vec::new() } else { vec![stale()] }
}

/// Draws the picture; `None` if modules form a cycle.
pub(crate) fn draw(tree: &Tree) -> Option<String> {
    let all = modules::crates(tree);
    let depends = crates::dependencies_between(tree);
    let mut order: Vec<(usize, &String)> = Vec::new();
    let crate_levels = levels(&depends)?;
    for name in all.keys() {
        order.push((crate_levels.get(name).copied().unwrap_or_default(), name));
    }
    order.sort_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(other.1)));
    let (mut body, mut top) = (String::new(), MARGIN + 24);
    for (_, name) in order {
        let uses = &all[name];
        let mut rows: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
        for (module, level) in levels(uses)? {
            // The root file only declares modules and re-exports from them.
            if !module.is_empty() {
                rows.entry(level).or_default().push(uses.get_key_value(&module)?.0);
            }
        }
        let needs: Vec<&str> = depends.get(name).into_iter().flatten().map(String::as_str).collect();
        top = draw_crate(&mut body, top, name, &needs, rows.into_values().rev());
    }
    let mut picture = String::new();
    writeln!(
        picture,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {top}\" width=\"{WIDTH}\" height=\"{top}\" role=\"img\">\n\
         <title>Crates and their top-level modules</title>\n\
         <style>\n\
         text {{ font-family: ui-monospace, \"DejaVu Sans Mono\", Menlo, Consolas, monospace; font-size: 11px; fill: #1f2328; }}\n\
         .name {{ font-size: 14px; font-weight: 600; }}\n\
         .about {{ fill: #57606a; }}\n\
         .crate {{ fill: #f6f8fa; stroke: #d0d7de; }}\n\
         .module {{ fill: #ffffff; stroke: #8c959f; }}\n\
         </style>\n\
         <rect width=\"{WIDTH}\" height=\"{top}\" fill=\"#ffffff\"/>\n\
         <text class=\"about\" x=\"{MARGIN}\" y=\"{}\">A crate uses crates below it only. In a crate, a module uses modules in the rows below its \
         own only.</text>",
        MARGIN + 8
    )
    .ok()?;
    picture.push_str(&body);
    picture.push_str("</svg>\n");
    Some(picture)
}

/// Draws a crate, with the highest modules on top. Returns where the next crate begins.
fn draw_crate<'a>(
    body: &mut String,
    top: usize,
    name: &str,
    needs: &[&str],
    rows: impl Iterator<Item = Vec<&'a str>>,
) -> usize {
    let mut boxes = String::new();
    let mut y = top + TITLE_HEIGHT;
    for row in rows {
        let mut x = 2 * MARGIN;
        for module in row {
            let width = module.len() * LETTER + 14;
            if x + width > WIDTH - 2 * MARGIN {
                (x, y) = (2 * MARGIN, y + ROW_HEIGHT - 6);
            }
            let _ = writeln!(
                boxes,
                "<rect class=\"module\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{BOX_HEIGHT}\" rx=\"4\"/>\
                 <text x=\"{}\" y=\"{}\">{module}</text>",
                x + 7,
                y + 16
            );
            x += width + 8;
        }
        y += ROW_HEIGHT;
    }
    let height = y - top;
    let uses =
        if needs.is_empty() { "uses no other".to_owned() } else { format!("uses {}", needs.join(", ")) };
    let _ = writeln!(
        body,
        "<rect class=\"crate\" x=\"{MARGIN}\" y=\"{top}\" width=\"{}\" height=\"{height}\" rx=\"6\"/>\n\
         <text class=\"name\" x=\"{left}\" y=\"{}\">{name}</text><text class=\"about\" x=\"{left}\" y=\"{}\">{uses}</text>",
        WIDTH - 2 * MARGIN,
        top + 20,
        top + 36,
        left = 2 * MARGIN
    );
    body.push_str(&boxes);
    y + MARGIN
}

/// Returns the level of each module: one above the highest that it uses. `None` if there is a cycle.
fn levels(uses: &Uses) -> Option<BTreeMap<String, usize>> {
    let mut levels = BTreeMap::new();
    while levels.len() < uses.len() {
        let before = levels.len();
        for (name, used) in uses {
            let known =
                used.iter().filter(|used| uses.contains_key(*used)).map(|used| levels.get(used).copied());
            if !levels.contains_key(name)
                && let Some(known) = known.collect::<Option<Vec<usize>>>()
            {
                levels.insert(name.clone(), known.into_iter().max().map_or(0, |highest| highest + 1));
            }
        }
        if levels.len() == before {
            return None;
        }
    }
    Some(levels)
}

#[cfg(test)]
mod self_tests {
    use super::*;

    const FILES: [(&str, &str); 4] = [
        ("crates/k/Cargo.toml", "[package]\nname = \"k\"\n"),
        ("crates/k/src/lib.rs", "mod a; mod b;"),
        ("crates/k/src/a.rs", "use crate::b::B;"),
        ("crates/k/src/b.rs", "pub struct B;"),
    ];

    #[test]
    fn a_module_is_drawn_above_those_that_it_uses() {
        let picture = draw(&Tree::of(&FILES)).unwrap();
        let place = |module: &str| picture.find(&format!(">{module}</text>")).unwrap();
        assert!(place("a") < place("b"), "{picture}");
        assert!(picture.contains("uses no other"));
    }

    #[test]
    fn a_picture_of_other_code_is_found() {
        assert_eq!(up_to_date(&Tree::of(&FILES)).len(), 1, "there is none");
        let picture = draw(&Tree::of(&FILES)).unwrap();
        let with = |text: &str| up_to_date(&Tree::of(&[&FILES[..], &[(FILE, text)]].concat())).len();
        assert_eq!((with(&picture), with("<svg/>")), (0, 1));
    }

    #[test]
    fn a_circle_is_not_drawn() {
        let mut files = FILES;
        files[3].1 = "use crate::a; pub struct B;";
        assert_eq!(draw(&Tree::of(&files)), None);
    }
}
