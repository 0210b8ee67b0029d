//! A report with its MAC: what is signed, how it is written, and how it is checked again.
//!
//! Signed are the facts in one canonical form: JSON without spaces, keys of objects in the order
//! of their bytes. The HTML page carries the same document, so that one file is enough; it is
//! checked by rendering its facts again and comparing every byte.

use std::collections::HashSet;
use std::fmt;
use std::io::{self, Read};

use aws_lc_rs::digest;
use data_encoding::HEXLOWER;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};
use tidelock_cipher::DataKey;

use crate::page;

/// How the MAC is made, for whoever reads the document.
const ALGORITHM: &str =
    "HMAC-SHA-256; key = HKDF-Expand-SHA-256(data key, \"tidelock v1 report mac\")";
const VERSION: u64 = 1;
/// The fields of a document, and of its MAC. What is signed is in one of them.
const FIELDS: [&str; 4] = ["version", "command", "report", "mac"];
const MAC_FIELDS: [&str; 3] = ["algorithm", "data_key", "value"];
/// Around the document in a page.
const BEGIN: &str = "<script type=\"application/json\" id=\"report\">";
const END: &str = "</script>";

/// The facts, and what proves who wrote them down.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    facts: Value,
    data_key: String,
    mac: Vec<u8>,
}

/// What a document is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// The facts are as they were signed, and a page shows just them.
    Genuine,
    /// The MAC does not match: facts or MAC were changed, or another key signed.
    Forged,
    /// The facts are genuine, but the page around them is not what this program makes of them:
    /// changed, or made by another version.
    OtherPage,
}

/// What is no report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// Neither JSON nor one of our pages.
    #[error("it is no report: neither its JSON nor a page that carries it")]
    NotOne,
    /// Of a later version, or a field is missing.
    #[error("its \"{0}\" is missing, or is not what this version writes")]
    Field(&'static str),
    /// An object in it has a key twice: readers of JSON differ in which one counts.
    #[error("it has a field twice")]
    Twice,
    /// What no MAC covers would be taken for a part of it.
    #[error("it has a field that no report has, which its MAC does not cover")]
    Unknown,
}

impl Document {
    /// Signs the facts with this data key, whose id is `data_key`.
    #[must_use]
    pub fn sign(facts: Value, data_key: String, key: &DataKey) -> Self {
        let mac = key.report_mac(&canonical(&facts)).to_vec();
        Self { facts, data_key, mac }
    }

    /// A document in JSON, or in one of our pages.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub fn parse(text: &str) -> Result<Self, DocumentError> {
        let json = match text.split_once(BEGIN) {
            Some((_, rest)) => rest.split_once(END).map_or(rest, |(json, _)| json),
            None => text,
        };
        let value: Value = serde_json::from_str(json).map_err(|_| DocumentError::NotOne)?;
        if serde_json::from_str::<Unrepeated>(json).is_err() {
            return Err(DocumentError::Twice);
        }
        if value["version"].as_u64() != Some(VERSION) {
            return Err(DocumentError::Field("version"));
        }
        if !has_only(&value, &FIELDS) || !has_only(&value["mac"], &MAC_FIELDS) {
            return Err(DocumentError::Unknown);
        }
        if value.get("command").is_some_and(|it| it != "report") {
            return Err(DocumentError::Field("command"));
        }
        let word = |name: &'static str| {
            value["mac"][name].as_str().ok_or(DocumentError::Field(name)).map(str::to_owned)
        };
        let hex = word("value")?;
        let mac = HEXLOWER.decode(hex.as_bytes()).map_err(|_| DocumentError::Field("value"))?;
        if word("algorithm")? != ALGORITHM {
            return Err(DocumentError::Field("algorithm"));
        }
        let facts = value.get("report").filter(|it| it.is_object());
        let facts = facts.ok_or(DocumentError::Field("report"))?.clone();
        Ok(Self { facts, data_key: word("data_key")?, mac })
    }

    /// What it says.
    #[must_use]
    pub const fn facts(&self) -> &Value {
        &self.facts
    }

    /// The id of the data key that signed it.
    #[must_use]
    pub fn data_key(&self) -> &str {
        &self.data_key
    }

    /// As a file.
    #[must_use]
    pub fn json(&self) -> String {
        format!("{:#}\n", self.value())
    }

    /// As a page that opens from the disk and prints.
    ///
    /// # Errors
    /// Facts that lack what the page shows.
    pub fn html(&self) -> Result<String, minijinja::Error> {
        // No `<` ends the element early: JSON can write it as an escape.
        let data = self.value().to_string().replace('<', "\\u003c");
        page::page(&self.facts, &HEXLOWER.encode(&self.mac), &self.data_key, &data)
    }

    /// What `text`, from which this was parsed, is worth under this data key.
    #[must_use]
    pub fn check(&self, text: &str, key: &DataKey) -> Checked {
        if !key.proves_report(&canonical(&self.facts), &self.mac) {
            return Checked::Forged;
        }
        let is_page = text.contains(BEGIN);
        if is_page && self.html().ok().as_deref() != Some(text) {
            return Checked::OtherPage;
        }
        Checked::Genuine
    }

    fn value(&self) -> Value {
        sorted(&json!({
            "version": VERSION,
            "command": "report",
            "report": self.facts,
            "mac": {
                "algorithm": ALGORITHM,
                "data_key": self.data_key,
                "value": HEXLOWER.encode(&self.mac),
            },
        }))
    }
}

/// Of an object: no field but these.
fn has_only(value: &Value, fields: &[&str]) -> bool {
    let mut names = value.as_object().into_iter().flat_map(Map::keys);
    names.all(|name| fields.contains(&name.as_str()))
}

/// JSON in which no object has a key twice. A [`Value`] would silently keep the last.
struct Unrepeated;

impl<'de> Deserialize<'de> for Unrepeated {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Unrepeated {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without repeated keys")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            map.next_value::<Self>()?;
            if !names.insert(name) {
                return Err(A::Error::custom("a repeated key"));
            }
        }
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }
}

/// The SHA-256 of what is read, in hexadecimal digits.
///
/// # Errors
/// The reader's.
pub fn sha256(mut from: impl Read) -> io::Result<String> {
    let mut context = digest::Context::new(&digest::SHA256);
    let mut chunk = vec![0; 256 * 1024];
    loop {
        match from.read(&mut chunk)? {
            0 => return Ok(HEXLOWER.encode(context.finish().as_ref())),
            count => context.update(&chunk[..count]),
        }
    }
}

fn canonical(facts: &Value) -> Vec<u8> {
    sorted(facts).to_string().into_bytes()
}

/// Whatever order serde_json keeps, which the features of other crates decide.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut pairs: Vec<_> = object.iter().collect();
            pairs.sort_by(|a, b| a.0.cmp(b.0));
            let pairs = pairs.into_iter().map(|(name, value)| (name.clone(), sorted(value)));
            Value::Object(pairs.collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidelock_cipher::Secret;

    fn key(byte: u8) -> DataKey {
        DataKey::new(Secret::new([byte; 32]))
    }

    fn document() -> Document {
        Document::sign(page::tests::facts(), "00ff".to_owned(), &key(1))
    }

    #[test]
    fn a_document_survives_its_files_and_any_order_of_keys() {
        let (document, key) = (document(), key(1));
        for text in [document.json(), document.html().unwrap()] {
            let again = Document::parse(&text).unwrap();
            assert_eq!(again, document);
            assert_eq!(again.check(&text, &key), Checked::Genuine);
        }
        let turned = document.json().replace("\"command\": \"report\",", "");
        let again = Document::parse(&turned).unwrap();
        assert_eq!(again.check(&turned, &key), Checked::Genuine);
    }

    #[test]
    fn a_change_of_any_fact_or_of_the_mac_or_another_key_is_seen() {
        let (document, text) = (document(), document().json());
        assert_eq!(document.check(&text, &key(2)), Checked::Forged);
        let changes = [("\"main\"", "\"other\""), ("\"files\": 968", "\"files\": 969")];
        for (old, new) in changes {
            assert!(text.contains(old), "{old}");
            let forged = text.replacen(old, new, 1);
            let parsed = Document::parse(&forged).unwrap();
            assert_eq!(parsed.check(&forged, &key(1)), Checked::Forged, "{old}");
        }
        let mac = HEXLOWER.encode(&document.mac);
        let other = mac.replace(|c: char| c.is_ascii_digit(), "a");
        let forged = text.replace(&mac, &other);
        assert_eq!(Document::parse(&forged).unwrap().check(&forged, &key(1)), Checked::Forged);
    }

    #[test]
    fn a_field_that_stands_twice_or_that_no_mac_covers_is_refused() {
        let text = document().json();
        // serde_json keeps the last, the genuine one; another reader takes the first.
        for (old, new) in [
            ("\"report\": {", "\"report\": {}, \"report\": {"),
            ("\"files\": {", "\"files\": {\"sealed\": 9999}, \"files\": {"),
            ("\"host\": ", "\"host\": \"x\", \"host\": "),
            ("\"host\": ", "\"h\\u006fst\": \"x\", \"host\": "),
        ] {
            let forged = text.replacen(old, new, 1);
            assert_ne!(forged, text, "{old}");
            assert_eq!(Document::parse(&forged), Err(DocumentError::Twice), "{new}");
        }
        for (old, new) in [
            ("\"version\": 1", "\"verdict\": \"all is sealed\", \"version\": 1"),
            ("\"algorithm\": ", "\"by\": \"an auditor\", \"algorithm\": "),
        ] {
            let forged = text.replacen(old, new, 1);
            assert_ne!(forged, text, "{old}");
            assert_eq!(Document::parse(&forged), Err(DocumentError::Unknown), "{new}");
        }
        let forged = text.replacen("\"command\": \"report\"", "\"command\": \"x\"", 1);
        assert_eq!(Document::parse(&forged), Err(DocumentError::Field("command")));
    }

    #[test]
    fn a_page_whose_visible_text_was_changed_is_seen() {
        let page = document().html().unwrap();
        let visible = page.replacen("968", "969", 1);
        assert_ne!(visible, page);
        let parsed = Document::parse(&visible).unwrap();
        assert_eq!(parsed.check(&visible, &key(1)), Checked::OtherPage);
    }

    #[test]
    fn facts_cannot_leave_their_place_in_the_page() {
        let mut facts = page::tests::facts();
        facts["directory"] = json!("</script><script>alert(1)</script>&\"'");
        let page = Document::sign(facts, "00ff".to_owned(), &key(1)).html().unwrap();
        assert!(!page.contains("<script>alert"), "{page}");
        assert_eq!(Document::parse(&page).unwrap().check(&page, &key(1)), Checked::Genuine);
    }

    #[test]
    fn what_is_no_report_is_refused_by_name() {
        for (text, error) in [
            ("", DocumentError::NotOne),
            ("{}", DocumentError::Field("version")),
            ("{\"version\": 2}", DocumentError::Field("version")),
            ("{\"version\": 1}", DocumentError::Field("value")),
            ("{\"version\": 1, \"mac\": {\"value\": \"xyz\"}}", DocumentError::Field("value")),
        ] {
            assert_eq!(Document::parse(text), Err(error), "{text}");
        }
    }

    /// FIPS 180-4: SHA-256 of "abc".
    #[test]
    fn sha_256_is_that_of_the_standard() {
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(&b"abc"[..]).unwrap(), hash);
    }
}
