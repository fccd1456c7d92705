//! The definition of a mutant: the mistake, its origin, the judges that must catch it, and the change.

use std::collections::BTreeSet;
use std::fmt;

/// One file under `mutants/`.
#[derive(Clone, Debug)]
pub(super) struct Patch {
    pub(super) name: String,
    /// The mistake, in one sentence.
    pub(super) mistake: String,
    /// Its origin: an issue or code of another system.
    pub(super) made_by: String,
    /// The judges that must catch it, all of them.
    pub(super) judges: Vec<Judge>,
    pub(super) files: Vec<FileDiff>,
}

/// A judge that must catch a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Judge {
    /// A search of seeds: this invariant must break in more of the first seeds' worlds than any other.
    Seeds { election: String, invariant: String },
    /// A space of the model checker, in which this invariant must break.
    Model { space: String, invariant: String },
    /// A test of a package, in its library (`lib`) or in the integration test of this name.
    Test { package: String, target: String, test: String },
    /// A run of chaos on this arm, in which this rule must break.
    Chaos { arm: String, rule: String },
}

/// The changes of a patch to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileDiff {
    pub(super) path: String,
    hunks: Vec<Hunk>,
}

/// Consecutive lines, with their replacement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Hunk {
    /// Their original line number, from 1: of several equal places, the nearest one is changed.
    line: usize,
    old: Vec<String>,
    new: Vec<String>,
}

impl Patch {
    /// Parses a header of `# key: value`, followed by the output of `git diff`.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, String> {
        let value = |key: &str| {
            let found =
                text.lines().find_map(|line| line.strip_prefix("# ")?.strip_prefix(key)?.strip_prefix(": "));
            found.map(|value| value.trim().to_owned()).ok_or_else(|| format!("there is no line `# {key}: …`"))
        };
        let (mistake, made_by) = (value("mistake")?, value("made by")?);
        let judges = text.lines().filter_map(|line| line.strip_prefix("# caught by: "));
        let judges = judges.map(Judge::parse).collect::<Result<Vec<Judge>, String>>()?;
        if judges.is_empty() {
            return Err("there is no line `# caught by: …`".to_owned());
        }
        let files = files(text)?;
        if files.is_empty() {
            return Err("there is no change in it".to_owned());
        }
        Ok(Self { name: name.to_owned(), mistake, made_by, judges, files })
    }

    /// Returns the packages that its judges need, each with its profile.
    pub(super) fn packages(&self) -> BTreeSet<(&str, &str)> {
        self.judges.iter().map(Judge::package).collect()
    }

    #[cfg(test)]
    pub(super) fn example() -> Self {
        let text = "# mistake: m\n# made by: b\n# caught by: seeds quorum I4\n\
                    --- a/x.rs\n+++ b/x.rs\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n";
        Self::parse("example", text).expect("it is right")
    }
}

impl Judge {
    fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let word = |index: usize| words.get(index).copied().unwrap_or_default().to_owned();
        match words.as_slice() {
            ["seeds", _, _] => Ok(Self::Seeds { election: word(1), invariant: word(2) }),
            ["model", _, _] => Ok(Self::Model { space: word(1), invariant: word(2) }),
            ["test", _, _, _] => Ok(Self::Test { package: word(1), target: word(2), test: word(3) }),
            // The name of a chaos rule beyond the invariants is a sentence.
            ["chaos", arm, rule @ ..] if !rule.is_empty() => {
                Ok(Self::Chaos { arm: (*arm).to_owned(), rule: rule.join(" ") })
            }
            _ => Err(format!(
                "caught by `{text}`? It is `seeds ELECTION INVARIANT`, `model SPACE INVARIANT`, \
                 `test PACKAGE TARGET TEST` or `chaos ARM RULE`"
            )),
        }
    }

    /// Returns the package that the judge is built from, and the profile.
    fn package(&self) -> (&str, &str) {
        match self {
            Self::Seeds { .. } | Self::Model { .. } => ("primacy-sim", "release"),
            Self::Test { package, .. } => (package, "dev"),
            Self::Chaos { .. } => ("primacy-lab", "release"),
        }
    }

    /// Returns the judge without its expected invariant.
    pub(super) fn without_invariant(&self) -> String {
        match self {
            Self::Seeds { election, .. } => format!("seeds {election}"),
            Self::Model { space, .. } => format!("model {space}"),
            Self::Test { .. } => self.to_string(),
            Self::Chaos { arm, .. } => format!("chaos {arm}"),
        }
    }

    /// Returns the invariant, test or rule that must break.
    pub(super) fn expected(&self) -> &str {
        match self {
            Self::Seeds { invariant, .. } | Self::Model { invariant, .. } => invariant,
            Self::Test { test, .. } => test,
            Self::Chaos { rule, .. } => rule,
        }
    }
}

impl fmt::Display for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seeds { election, invariant } => write!(f, "seeds {election} {invariant}"),
            Self::Model { space, invariant } => write!(f, "model {space} {invariant}"),
            Self::Test { package, target, test } => write!(f, "test {package} {target} {test}"),
            Self::Chaos { arm, rule } => write!(f, "chaos {arm} {rule}"),
        }
    }
}

/// Parses the part of a patch that `git diff` made.
fn files(text: &str) -> Result<Vec<FileDiff>, String> {
    let mut files: Vec<FileDiff> = Vec::new();
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("+++ ") {
            let path = path.strip_prefix("b/").ok_or_else(|| format!("`{line}`: a path begins with b/"))?;
            files.push(FileDiff { path: path.to_owned(), hunks: Vec::new() });
            continue;
        }
        let Some(file) = files.last_mut() else { continue };
        if let Some(place) = line.strip_prefix("@@ -") {
            let number = place.split([',', ' ']).next().and_then(|number| number.parse().ok());
            let line = number.ok_or_else(|| format!("`{line}`: that says no line"))?;
            file.hunks.push(Hunk { line, ..Hunk::default() });
            continue;
        }
        if line.starts_with("diff ") || line.starts_with("index ") || line.starts_with("--- ") {
            continue;
        }
        let Some(hunk) = file.hunks.last_mut() else { continue };
        match line.split_at_checked(1) {
            Some((" ", same)) => {
                hunk.old.push(same.to_owned());
                hunk.new.push(same.to_owned());
            }
            Some(("-", old)) => hunk.old.push(old.to_owned()),
            Some(("+", new)) => hunk.new.push(new.to_owned()),
            // An editor may have removed the space of an empty context line.
            None => {
                hunk.old.push(String::new());
                hunk.new.push(String::new());
            }
            Some(_) => return Err(format!("`{line}`: a line of a change begins with a blank, + or -")),
        }
    }
    Ok(files)
}

impl FileDiff {
    /// Returns the changed file.
    ///
    /// # Errors
    /// If the lines to change are not there any more.
    pub(super) fn apply(&self, text: &str) -> Result<String, String> {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut grown = 0;
        for hunk in &self.hunks {
            let meant = hunk.line.saturating_add_signed(grown).saturating_sub(1);
            let fits = |&at: &usize| lines[at..].starts_with(&hunk.old);
            let at = (0..lines.len()).filter(fits).min_by_key(|&at| at.abs_diff(meant)).ok_or_else(|| {
                format!(
                    "the lines near {} of {} are not there any more; make the patch anew",
                    hunk.line, self.path
                )
            })?;
            lines.splice(at..at + hunk.old.len(), hunk.new.iter().cloned());
            grown +=
                isize::try_from(hunk.new.len()).unwrap_or(0) - isize::try_from(hunk.old.len()).unwrap_or(0);
        }
        Ok(lines.join("\n") + "\n")
    }
}

#[cfg(test)]
mod self_tests {
    use super::*;

    #[test]
    fn a_change_is_made_where_it_fits_nearest() {
        let file = &Patch::example().files[0];
        assert_eq!(file.apply("one\ntwo\n"), Ok("one\nthree\n".to_owned()));
        assert_eq!(file.apply("zero\none\ntwo\none\ntwo\n"), Ok("zero\none\nthree\none\ntwo\n".to_owned()));
        assert!(file.apply("one\n\ntwo\n").is_err());
    }

    #[test]
    fn what_a_patch_does_not_say_is_missed() {
        let diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n";
        for header in [
            "# mistake: m\n# made by: b\n",
            "# mistake: m\n# caught by: seeds quorum I4\n",
            "# mistake: m\n# made by: b\n# caught by: luck\n",
        ] {
            assert!(Patch::parse("x", &format!("{header}{diff}")).is_err(), "{header}");
        }
        assert!(Patch::parse("x", "# mistake: m\n# made by: b\n# caught by: model calm I4\n").is_err());
        let patch =
            Patch::parse("x", &format!("# mistake: m\n# made by: b\n# caught by: model calm I4\n{diff}"));
        let patch = patch.expect("it is whole");
        assert_eq!(
            (patch.judges[0].to_string(), patch.judges[0].expected()),
            ("model calm I4".to_owned(), "I4")
        );
        assert_eq!((patch.mistake.as_str(), patch.made_by.as_str()), ("m", "b"));
    }
}
