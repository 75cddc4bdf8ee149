//! Copies the workspace, and applies and reverts mutants there.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

use rlock_tests::mutants::{Change, Mutant, workspace};

pub(super) struct Copy {
    root: PathBuf,
}

impl Copy {
    /// Synchronises the copy with the workspace. Equal files stay untouched, so that cargo compiles
    /// only the differences.
    pub(super) fn of_workspace(root: &Path) -> Self {
        synchronize(workspace(), root).unwrap_or_else(|error| {
            panic!("cannot copy the sources to {}: {error}", root.display())
        });
        Self {
            root: root.to_owned(),
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Applies a mutant.
    pub(super) fn apply(&self, mutant: &Mutant) -> Result<Applied<'_>, String> {
        let changes = mutant.changes(&self.root)?;
        // From here on a drop reverts the mutant.
        let applied = Applied {
            copy: self,
            changes,
        };
        for change in &applied.changes {
            self.write(&change.file, &change.after);
        }
        Ok(applied)
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.root.join(file), text).expect("the copy is writable");
    }
}

/// A mutant that is applied to the copy.
#[must_use = "the mutant is undone when this is dropped"]
pub(super) struct Applied<'a> {
    copy: &'a Copy,
    changes: Vec<Change>,
}

impl Drop for Applied<'_> {
    fn drop(&mut self) {
        for change in &self.changes {
            self.copy.write(&change.file, &change.before);
        }
    }
}

fn synchronize(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let mut wanted = HashSet::new();
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let (source, copy) = (entry.path(), to.join(&name));
        if name == ".git" || name == "target" || to.starts_with(&source) {
            continue;
        }
        // Follows links, because the page of the attribute is one.
        let kind = fs::metadata(&source)?;
        if kind.is_dir() {
            synchronize(&source, &copy)?;
        } else if kind.is_file() {
            let text = fs::read(&source)?;
            if fs::read(&copy).ok().as_ref() != Some(&text) {
                fs::write(&copy, text)?;
            }
        } else {
            continue;
        }
        wanted.insert(name);
    }
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        if wanted.contains(&entry.file_name()) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
