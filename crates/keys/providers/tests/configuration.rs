//! Whatever stands in a configuration file, or behind --provider, is a choice or an error that
//! names its place: never a panic, and never something else when it is written and read again.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};

use proptest::prelude::*;
use tidelock_format::KeyringId;
use tidelock_keyring::{Error, Profile};
use tidelock_providers::{Config, Places, ProviderChoice};

const ID: KeyringId = KeyringId([7; 16]);

/// One of each, from which others are made by changing them.
const CONFIGURATIONS: &[&str] = &[
    "directory = \"/d\"\naudit = \"file:/log\"\ncryptoperiod_days = 9\n[[provider]]\ntype = \
     \"file\"\npath = \"/k\"\n",
    "[[provider]]\ntype = \"passphrase\"\n[[provider]]\ntype = \"env\"\nvariable = \"A\"\n",
    "[[provider]]\ntype = \"command\"\nwrap = \"w %p\"\nunwrap = \"u %p\"\n",
    "[[provider]]\ntype = \"systemd\"\ncredential = \"pg\"\n",
    "[[provider]]\ntype = \"pkcs11\"\nmodule = \"/m.so\"\ntoken = \"t\"\nid = \"01\"\npin = \
     \"ask\"\n",
    "[[provider]]\ntype = \"kmip\"\nhost = \"h\"\nkey_id = \"42\"\nmode = \"encrypt\"\n\
     certificate_file = \"/c\"\nkey_file = \"/k\"\n",
    "[[provider]]\ntype = \"aws-kms\"\nkey = \"alias/a\"\nregion = \"eu-west-1\"\n",
    "[[provider]]\ntype = \"vault\"\naddress = \"https://v:8200\"\nengine = \"transit\"\nkey = \
     \"k\"\n\
     [provider.approle]\nrole_id = \"r\"\nsecret_id_file = \"/s\"\n",
    "[[provider]]\ntype = \"vault\"\naddress = \"https://[::1]/\"\nengine = \"kv2\"\npath = \
     \"a/b\"\nversion = 3\n",
];

const TEXTS: &[&str] = &[
    "file:/k",
    "passphrase",
    "command:a %p",
    "env:A",
    "systemd:pg",
    "aws-kms:alias/a",
    "pkcs11:token=t;object=k;id=%01?module-path=/m.so&pin-source=file:/p",
    "kmip:[::1]:5696/42?certificate=/c&key=/k&ca=/a&mode=encrypt",
    "vault:transit/pg",
    "vault:kv/a/b#field",
];

/// What an `ID.toml` with this text means, read as a command reads it.
fn find(text: &str) -> Result<Option<Config>, Error> {
    let home = tempfile::tempdir().unwrap();
    let own = home.path().join("own");
    let folder = own.join("keyrings");
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).unwrap();
    let path = folder.join(format!("{ID}.toml"));
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let places = Places { system: home.path().join("etc"), own: Some(own) };
    let found = places.find(ID, &home.path().join("data"));
    if let Err(why) = &found {
        let path = path.display().to_string();
        assert!(why.to_string().contains(&path), "{why} does not name {path}");
    }
    found
}

#[track_caller]
fn is_a_configuration_or_an_error(text: &str) {
    match find(text) {
        Ok(Some(config)) => {
            let again = toml::to_string(&config).unwrap();
            assert_eq!(toml::from_str::<Config>(&again).unwrap(), config, "{again}");
        }
        Ok(None) => panic!("the file was not seen"),
        Err(Error::ConfigSyntax { why, .. }) => {
            // Of a sentence about the whole file, only its length needs no line.
            assert!(why.contains("line ") || why.contains("longer than"), "{why}");
        }
        Err(why) => panic!("{why}"),
    }
}

#[track_caller]
fn is_a_choice_or_an_error(text: &str) {
    match text.parse::<ProviderChoice>() {
        // Where somebody logs in, the environment may say, which a file does not hold.
        Ok(choice) if choice.kind().slot.name() == "vault" => {}
        Ok(choice) => {
            if let Ok(again) = toml::to_string(&choice) {
                assert_eq!(toml::from_str::<ProviderChoice>(&again).unwrap(), choice, "{again}");
            }
        }
        Err(why) => {
            assert!(!why.to_string().is_empty() && !why.hint().is_empty(), "{text}");
        }
    }
}

/// A text with a piece of it replaced by something else.
fn changed(texts: &'static [&'static str]) -> impl Strategy<Value = String> {
    let pieces = prop_oneof![
        Just(String::new()),
        Just("\0".to_owned()),
        Just("-1".to_owned()),
        Just("[".to_owned()),
        Just("\"".to_owned()),
        Just("%".to_owned()),
        Just("\u{e9}".to_owned()),
        Just("99999999999999999999".to_owned()),
        any::<String>(),
        "[a-z_]{1,12} = (true|-?[0-9]{1,20}|\"[^\"]{0,9}\"|\\[\\]|\\{\\})\n",
    ];
    (any::<prop::sample::Index>(), any::<[prop::sample::Index; 2]>(), pieces).prop_map(
        move |(which, ends, piece)| {
            let text = texts[which.index(texts.len())];
            let mut ends = ends.map(|end| end.index(text.len() + 1));
            ends.sort_unstable();
            format!("{}{piece}{}", &text[..ends[0]], &text[ends[1]..])
        },
    )
}

/// A table of a provider with fields of all of them and values of any type.
fn table() -> impl Strategy<Value = String> {
    let names = [
        "path",
        "variable",
        "credential",
        "command",
        "wrap",
        "unwrap",
        "module",
        "token",
        "serial",
        "key",
        "id",
        "pin",
        "pin_file",
        "host",
        "port",
        "key_id",
        "mode",
        "certificate_file",
        "key_file",
        "ca_file",
        "timeout_seconds",
        "region",
        "profile",
        "endpoint",
        "address",
        "engine",
        "mount",
        "namespace",
        "field",
        "version",
        "token_file",
        "approle",
        "allow_http",
    ];
    let kinds =
        ["file", "passphrase", "command", "env", "systemd", "pkcs11", "kmip", "aws-kms", "vault"];
    let value = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<bool>().prop_map(|truth| truth.to_string()),
        "\"[ -!#-\\[\\]-~]{0,12}\"",
        Just("\"/a/path\"".to_owned()),
        Just("\"https://h\"".to_owned()),
        Just("\"transit\"".to_owned()),
        Just("\"ask\"".to_owned()),
        Just("{ role_id = \"r\" }".to_owned()),
        Just("[1, 2]".to_owned()),
    ];
    let field = (prop::sample::select(names.to_vec()), value);
    (prop::sample::select(kinds.to_vec()), prop::collection::btree_map(field.0, field.1, 0..7))
        .prop_map(|(kind, fields)| {
            let lines = fields.iter().map(|(name, value)| format!("{name} = {value}\n"));
            format!("[[provider]]\ntype = \"{kind}\"\n{}", lines.collect::<String>())
        })
}

#[test]
fn each_example_is_one() {
    for text in CONFIGURATIONS {
        assert!(find(text).unwrap().is_some_and(|config| !config.providers.is_empty()), "{text}");
    }
    for text in TEXTS {
        assert!(text.parse::<ProviderChoice>().is_ok(), "{text}");
    }
}

#[test]
fn a_configuration_that_is_too_long_is_not_cut() {
    let text = format!("{}#{}\naudit = \"journal\"\n", CONFIGURATIONS[0], "x".repeat(70_000));
    assert!(matches!(find(&text), Err(Error::ConfigSyntax { .. })));
}

proptest! {
    #[test]
    fn any_text_is_a_configuration_or_an_error(text: String) {
        is_a_configuration_or_an_error(&text);
    }

    #[test]
    fn a_changed_configuration_is_one_or_an_error(text in changed(CONFIGURATIONS)) {
        is_a_configuration_or_an_error(&text);
    }

    #[test]
    fn any_table_of_a_provider_is_one_or_an_error(text in table()) {
        is_a_configuration_or_an_error(&text);
    }

    #[test]
    fn any_text_is_a_provider_or_an_error(text: String) {
        is_a_choice_or_an_error(&text);
    }

    #[test]
    fn a_changed_provider_is_one_or_an_error(text in changed(TEXTS)) {
        is_a_choice_or_an_error(&text);
    }

    #[test]
    fn any_text_is_a_profile_or_an_error(text: String) {
        let _ = Profile::parse(&text);
    }
}
