//! `NAME.toml`: what is configured for a directory, whatever keyring it has, or if it has none yet.
//!
//! The directory is compared by where it really is. Of what is in the folder only files are looked
//! at whose name ends with `.toml`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tidelock_keyring::Error;

use super::{Config, read as read_config};
use crate::trust::Audience;

/// What one `NAME.toml` says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// The file.
    pub file: PathBuf,
    /// The directory, as the file has it.
    pub directory: PathBuf,
    /// The rest.
    pub config: Config,
}

/// The file in `folder` that names `dir`.
pub(super) fn search(
    folder: &Path,
    audience: Audience,
    dir: &Path,
) -> Result<Option<Named>, Error> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(Error::io("list", folder)(why)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(Error::io("list", folder))?.path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            files.push(path);
        }
    }
    files.sort();
    let dir = real(dir);
    let (mut found, mut failure) = (None::<Named>, None);
    for file in files {
        match read(&file, audience) {
            Ok(Some(named)) if real(&named.directory) == dir => match &found {
                Some(first) => {
                    let why = format!("{} names the same directory", first.file.display());
                    return Err(Error::ConfigSyntax { path: file, why });
                }
                None => found = Some(named),
            },
            Ok(_) => {}
            // It may be the one: so nothing is told to be configured.
            Err(why) => failure = failure.or(Some(why)),
        }
    }
    match (found, failure) {
        (None, Some(why)) => Err(why),
        (found, _) => Ok(found),
    }
}

/// One file; nothing if it is not there.
pub(super) fn read(file: &Path, audience: Audience) -> Result<Option<Named>, Error> {
    let Some(config) = read_config(file, audience, 1)? else { return Ok(None) };
    match &config.directory {
        Some(directory) if directory.is_absolute() => {
            Ok(Some(Named { file: file.into(), directory: directory.clone(), config }))
        }
        _ => Err(Error::ConfigSyntax {
            path: file.into(),
            why: "`directory` must name the protected directory, by an absolute path".to_owned(),
        }),
    }
}

/// Without links, also where the last component does not exist.
pub(super) fn real(dir: &Path) -> PathBuf {
    let dir = &std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
    if let Ok(real) = dir.canonicalize() {
        return real;
    }
    match (dir.parent().map(Path::canonicalize), dir.file_name()) {
        (Some(Ok(above)), Some(name)) => above.join(name),
        _ => dir.to_path_buf(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};

    use tidelock_format::KeyringId;

    use super::super::Places;
    use super::*;

    const ID: KeyringId = KeyringId([7; 16]);

    struct World {
        home: tempfile::TempDir,
        places: Places,
    }

    impl World {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            let own = home.path().join("own");
            fs::DirBuilder::new().mode(0o700).create(&own).unwrap();
            let places = Places { system: home.path().join("etc"), own: Some(own) };
            Self { home, places }
        }

        fn put(&self, name: &str, dir: &str, more: &str) -> PathBuf {
            let path = self.home.path().join("own").join(name);
            let dir = self.home.path().join(dir);
            fs::write(&path, format!("directory = \"{}\"\n{more}", dir.display())).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            path
        }

        fn named(&self, dir: &str) -> Result<Option<Named>, Error> {
            self.places.named(&self.home.path().join(dir))
        }
    }

    #[test]
    fn a_directory_that_does_not_exist_yet_is_found_through_links() {
        let world = World::new();
        fs::create_dir(world.home.path().join("disk")).unwrap();
        symlink("disk", world.home.path().join("link")).unwrap();
        let path = world.put("pg.toml", "link/pg", "auto_init = true\nprofile = \"generic\"\n");
        world.put("pg.toml.bak", "disk/pg", "nonsense");
        let found = world.named("disk/pg").unwrap().unwrap();
        assert_eq!((found.file, found.config.auto_init), (path.clone(), true));
        assert_eq!(world.named("disk/other").unwrap(), None);
        // Whatever keyring it gets.
        let dir = world.home.path().join("disk/pg");
        fs::create_dir(&dir).unwrap();
        assert!(world.places.find(ID, &dir).unwrap().is_some());
        // One provider more goes into the file that is in force.
        let choice = "file:/keys/k".parse().unwrap();
        assert_eq!(world.places.add_provider(ID, &dir, &choice).unwrap(), path);
        assert_eq!(world.places.find(ID, &dir).unwrap().unwrap().providers, [choice]);
    }

    #[test]
    fn two_files_for_one_directory_are_refused() {
        let world = World::new();
        world.put("a.toml", "pg", "");
        world.put("b.toml", "pg", "");
        assert!(matches!(world.named("pg"), Err(Error::ConfigSyntax { .. })));
        assert_eq!(world.named("other").unwrap(), None);
    }

    #[test]
    fn a_file_that_cannot_be_read_hides_nothing_but_itself() {
        let world = World::new();
        world.put("a.toml", "pg", "auto-init = true\n");
        world.put("b.toml", "good", "");
        assert!(world.named("good").unwrap().is_some());
        assert!(matches!(world.named("pg"), Err(Error::ConfigSyntax { .. })));
        let path = world.put("a.toml", "pg", "");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
        assert!(matches!(world.named("pg"), Err(Error::LooseFile { .. })));
    }

    #[test]
    fn helpers_are_roots_to_name() {
        let world = World::new();
        world.put("a.toml", "pg", "helpers = [\"/usr/bin/pgbackrest\"]\n");
        assert!(matches!(world.named("pg"), Err(Error::ConfigSyntax { .. })));
        if !rustix::process::geteuid().is_root() {
            return;
        }
        fs::remove_file(world.home.path().join("own/a.toml")).unwrap();
        let folder = world.places.system.join("keyrings");
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&folder).unwrap();
        let put = |name: &str, text: &str| {
            let path = world.places.system.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        };
        let dir = world.home.path().join("pg");
        let head = format!("directory = \"{}\"\n", dir.display());
        put("pg.toml", &format!("{head}helpers = [\"/usr/bin/b\", \"/usr/bin/a\"]\n"));
        put(&format!("keyrings/{ID}.toml"), "helpers = [\"/usr/bin/a\"]\n");
        let found = world.places.find(ID, &dir).unwrap().unwrap();
        assert_eq!(found.helpers, [Path::new("/usr/bin/a"), Path::new("/usr/bin/b")]);
        for bad in ["pgbackrest", "/usr/../bin/a", "/usr//bin/a", "/usr/bin/a/", "/a\\nb"] {
            put("pg.toml", &format!("{head}helpers = [\"{bad}\"]\n"));
            let found = world.places.named(&dir);
            assert!(matches!(found, Err(Error::ConfigSyntax { .. })), "{bad}");
        }
    }
}
