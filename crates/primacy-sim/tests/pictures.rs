//! The pictures in the documents show what happens now. `UPDATE_GOLDENFILES=1` draws them anew, as does the command that
//! docs/guide/simulation.md names.

use std::fs;
use std::path::Path;

use primacy_sim::draw::svg;
use primacy_sim::replay::{End, script};

/// The scripts that are drawn, each as `docs/guide/pictures/NAME.svg`.
const PICTURES: [(&str, &str); 2] =
    [("quorum", "paused_leader_finds_itself_deposed"), ("lease", "late_take_of_the_dead_is_released")];

#[test]
fn the_pictures_are_up_to_date() {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (election, name) in PICTURES {
        let text = fs::read_to_string(crate_dir.join(format!("scripts/{election}/{name}.txt"))).unwrap();
        let replayed = script(election, name, &text, None).unwrap();
        assert_eq!(replayed.end, End::Good);
        let drawn = svg(&replayed.entries, &replayed.frame);
        let file = crate_dir.join(format!("../../docs/guide/pictures/{name}.svg"));
        if std::env::var_os("UPDATE_GOLDENFILES").is_some_and(|value| value == "1") {
            fs::write(&file, &drawn).unwrap();
        }
        let kept = fs::read_to_string(&file).unwrap_or_default();
        assert!(kept == drawn, "{} is not what happens; draw it with UPDATE_GOLDENFILES=1", file.display());
    }
}
