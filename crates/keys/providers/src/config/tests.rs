//! Which file of configuration counts, and what it may say.

use std::os::unix::fs::PermissionsExt;

use super::*;

const ID: KeyringId = KeyringId([7; 16]);
const DIR: &str = "/data/pg";

fn places() -> (tempfile::TempDir, Places) {
    let home = tempfile::tempdir().unwrap();
    let places = Places { system: home.path().join("etc"), own: Some(home.path().join("own")) };
    (home, places)
}

fn config() -> Config {
    Config {
        directory: Some("/data/pg".into()),
        audit: Some(AuditTarget::File("/log/pg".into())),
        providers: vec![
            "file:/keys/pg.key".parse().unwrap(),
            "passphrase".parse().unwrap(),
            "command:get-key --for %p".parse().unwrap(),
        ],
        ..Config::default()
    }
}

#[test]
fn what_init_writes_is_found_again() {
    let (_home, places) = places();
    assert_eq!(places.find(ID, DIR.as_ref()).unwrap(), None);
    let path = places.write(ID, &config()).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(places.find(ID, DIR.as_ref()).unwrap(), Some(config()));
    assert_eq!(places.find(KeyringId([8; 16]), DIR.as_ref()).unwrap(), None);
}

/// Messages go into logs.
#[test]
fn a_secret_that_was_written_into_the_configuration_is_not_printed() {
    let (_home, places) = places();
    let path = places.write(ID, &config()).unwrap();
    let token = "type = \"pkcs11\"\nmodule = \"/m.so\"\ntoken = \"t\"\nkey = \"k\"\n";
    for (entry, told) in [
        (format!("{token}pin = \"123456\"\n"), "unknown variant, expected "),
        (format!("{token}pin = 123456\n"), "expected"),
        (format!("{token}pin_file = 123456\n"), "expected"),
        ("type = \"vault\"\nengine = \"123456\"\n".to_owned(), "unknown variant, expected "),
        ("type = \"file\"\npath = \"/k\"\npin = 123456 7\n".to_owned(), "line 5, column "),
        ("type = \"vault\"\ntimeout_seconds = \"123456\"\n".to_owned(), "expected"),
    ] {
        let text = format!("# why\n[[provider]]\n{entry}");
        fs::write(&path, &text).unwrap();
        let why = places.find(ID, DIR.as_ref()).unwrap_err().to_string();
        assert!(!why.contains("123456") && why.contains(told), "{entry}: {why}");
        assert!(!why.contains('\n'), "{why}");
    }
}

#[test]
fn a_key_in_a_variable_is_known_whatever_it_opens_and_a_loose_file_names_none() {
    let (_home, places) = places();
    let of = |name: &str| {
        let providers = vec![format!("env:{name}").parse().unwrap()];
        Config { providers, ..Config::default() }
    };
    places.write(ID, &of("ONE")).unwrap();
    let loose = places.write(KeyringId([8; 16]), &of("TWO")).unwrap();
    assert_eq!(Vec::from_iter(places.secret_variables()), ["ONE", "TWO"]);
    fs::set_permissions(loose, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(Vec::from_iter(places.secret_variables()), ["ONE"]);
}

#[test]
fn a_provider_is_added_behind_what_people_wrote() {
    let (_home, places) = places();
    let path = places.write(ID, &config()).unwrap();
    let mut text = fs::read_to_string(&path).unwrap();
    text.push_str("# the one in the safe\n");
    fs::write(&path, &text).unwrap();
    let new: ProviderChoice = "file:/keys/new.key".parse().unwrap();
    for _ in 0..2 {
        assert_eq!(places.add_provider(ID, DIR.as_ref(), &new).unwrap(), path);
    }
    let found = places.find(ID, DIR.as_ref()).unwrap().unwrap();
    assert_eq!(found.providers.len(), config().providers.len() + 1);
    assert_eq!(found.providers.last(), Some(&new));
    assert!(fs::read_to_string(&path).unwrap().starts_with(text.trim_end()));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_provider_of_which_a_part_is_not_written_is_added_once() {
    let (_home, places) = places();
    let path = places.write(ID, &config()).unwrap();
    // With the caller's token, which no file gets.
    let vault: ProviderChoice = "vault:transit/pg".parse().unwrap();
    for _ in 0..2 {
        assert_eq!(places.add_provider(ID, DIR.as_ref(), &vault).unwrap(), path);
    }
    let found = places.find(ID, DIR.as_ref()).unwrap().unwrap();
    assert_eq!(found.providers.len(), config().providers.len() + 1);
}

#[test]
fn a_list_in_one_line_is_left_as_it_is_and_the_entry_is_named() {
    let (_home, places) = places();
    let path = places.write(ID, &config()).unwrap();
    let text = "provider = [{ type = \"passphrase\" }]\n";
    fs::write(&path, text).unwrap();
    let new: ProviderChoice = "file:/keys/new.key".parse().unwrap();
    let refused = places.add_provider(ID, DIR.as_ref(), &new).unwrap_err();
    assert!(matches!(refused, Error::ConfigClosed { .. }), "{refused}");
    assert!(refused.to_string().contains("path = \"/keys/new.key\""), "{refused}");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_configuration_that_others_can_change_is_refused() {
    let (_home, places) = places();
    let path = places.write(ID, &config()).unwrap();
    for mode in [0o644, 0o620, 0o602] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert!(matches!(places.find(ID, DIR.as_ref()), Err(Error::LooseFile { .. })), "{mode:o}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let folder = path.parent().unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(places.find(ID, DIR.as_ref()), Err(Error::LooseFile { .. })));
}

#[test]
fn roots_file_comes_first_and_must_be_roots() {
    let (_home, places) = places();
    places.write(ID, &config()).unwrap();
    let folder = places.system.join("keyrings");
    DirBuilder::new().recursive(true).mode(0o755).create(&folder).unwrap();
    let path = file(&places.system, ID);
    fs::write(&path, "[[provider]]\ntype = \"passphrase\"\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let found = places.find(ID, DIR.as_ref());
    if rustix::process::geteuid().is_root() {
        assert_eq!(found.unwrap().unwrap().providers, ["passphrase".parse().unwrap()]);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
        let why = places.find(ID, DIR.as_ref()).unwrap_err();
        assert!(matches!(why, Error::LooseShared { .. }));
        // Whoever follows this leaves the file readable to the server's user.
        assert!(why.hint().contains("chmod go-w") && !why.hint().contains("600"));
    } else {
        assert!(matches!(found, Err(Error::LooseShared { .. })));
    }
}

/// Two directories of two users, who are known by `uid` and another number.
#[test]
fn root_opens_a_keyring_by_its_id_for_the_owner_of_the_recorded_directory_alone() {
    let (home, places) = places();
    let (mine, copy) = (home.path().join("mine"), home.path().join("copy"));
    fs::create_dir(&mine).unwrap();
    fs::create_dir(&copy).unwrap();
    let me = rustix::process::geteuid().as_raw();
    let another = me + 1;
    let recorded = Config { directory: Some(mine.clone()), ..config() };
    let file = places.write(ID, &recorded).unwrap();
    // In its own place, and in a copy of the same user.
    for dir in [&mine, &copy] {
        let found = places.find_for(me, ID, dir).unwrap();
        assert_eq!(found.as_ref(), Some(&recorded));
    }
    // Whoever has a copy of the keyring has no part in its configuration.
    let refused = places.find_for(another, ID, &copy).unwrap_err();
    assert!(matches!(&refused, Error::ConfigOfAnother { path, .. } if *path == file));
    for named in [&file, &mine, &copy] {
        assert!(refused.to_string().contains(&named.display().to_string()), "{refused}");
    }
    assert_eq!(places.find(ID, &copy).unwrap(), Some(recorded));
    // Nobody owns what is gone, or is not said.
    for directory in [Some(home.path().join("gone")), Some("mine".into()), None] {
        let is_gone = directory.as_ref().is_some_and(|it| it.is_absolute());
        places.write(ID, &Config { directory, ..config() }).unwrap();
        let refused = places.find_for(me, ID, &mine).unwrap_err();
        assert!(matches!(refused, Error::ConfigOfAnother { .. }), "{refused}");
        assert_eq!(refused.to_string().contains("gone, which is gone"), is_gone, "{refused}");
    }
    let other = KeyringId([8; 16]);
    assert_eq!(places.find_for(me, other, &mine).unwrap(), None);
    // A file for the directory itself is for its owner alone too: what led there may have been
    // a link that is gone again.
    let named = Config { directory: Some(copy.clone()), ..config() };
    let text = toml::to_string(&named).unwrap();
    let name = places.own.as_ref().unwrap().join("copy.toml");
    fs::write(&name, text).unwrap();
    fs::set_permissions(&name, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(places.find_for(me, other, &copy).unwrap(), Some(named));
    let refused = places.find_for(another, other, &copy).unwrap_err();
    assert!(matches!(&refused, Error::ConfigOfAnother { path, .. } if *path == name));
}

#[test]
fn a_provider_that_is_the_first_records_the_directory() {
    let (home, places) = places();
    let dir = home.path().join("data");
    fs::create_dir(&dir).unwrap();
    places.add_provider(ID, &dir, &"file:/keys/new.key".parse().unwrap()).unwrap();
    let found = places.find(ID, &dir).unwrap().unwrap();
    assert_eq!(found.directory, Some(dir.canonicalize().unwrap()));
}

#[test]
fn a_misspelt_field_is_refused() {
    let (_home, places) = places();
    let path = places.write(ID, &config()).unwrap();
    for text in [
        "[[provider]]\ntype = \"file\"\npaht = \"/x\"\n",
        "[[provider]]\ntype = \"vualt\"\n",
        "allow_writable_programs = \"yes\"\n",
        "audit = \"file:relative\"\n",
        "audit = \"jornal\"\n",
        "auto_init = true\n",
        "profile = \"generic\"\n",
        "helpers = [\"/usr/bin/pgbackrest\"]\n",
    ] {
        fs::write(&path, text).unwrap();
        assert!(matches!(places.find(ID, DIR.as_ref()), Err(Error::ConfigSyntax { .. })), "{text}");
    }
}
