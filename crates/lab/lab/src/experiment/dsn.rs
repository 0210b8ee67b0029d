//! The `dsn` of an arm: how its server elsewhere is reached.

use super::OwnArm;

impl OwnArm {
    /// The parameters of its `dsn`; none without one.
    ///
    /// # Errors
    /// When it is not of the form `key=value key=value`, names no database or anything twice, or
    /// has a secret, which would be kept with the run.
    pub fn parameters(&self) -> Result<Vec<(String, String)>, String> {
        let Some(dsn) = &self.dsn else { return Ok(Vec::new()) };
        let wrong = |why: &str| format!("arm `{}`, dsn: {why}", self.name);
        let pair = |text: &str| {
            let (key, value) = text.split_once('=')?;
            let is_key = key.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_');
            let is_value = !value.is_empty() && !value.contains(['\'', '"']);
            (is_key && is_value && !key.is_empty()).then(|| (key.to_owned(), value.to_owned()))
        };
        let all: Option<Vec<(String, String)>> = dsn.split_whitespace().map(pair).collect();
        let all = all.ok_or_else(|| wrong("it has the form `host=... dbname=... sslmode=...`"))?;
        let is_secret = |key: &str| SECRETS.iter().any(|secret| key.contains(secret));
        if let Some((key, _)) = all.iter().find(|(key, _)| is_secret(key)) {
            let why = format!("{key} would be kept with the run; PGPASSWORD has the password");
            return Err(wrong(&why));
        }
        if let Some((key, _)) = all.iter().find(|(key, _)| key.starts_with("service")) {
            return Err(wrong(&format!("{key} is the lab's own; name host, user and dbname")));
        }
        for (at, (key, _)) in all.iter().enumerate() {
            if all.iter().take(at).any(|(other, _)| other == key) {
                return Err(wrong(&format!("{key} is there twice")));
            }
        }
        let database = all.iter().find(|(key, _)| key == "dbname").map(|(_, name)| name.as_str());
        match database {
            None => Err(wrong("it has no dbname, so the lab would choose the database")),
            Some(name) if name.contains('=') || name.contains("://") => {
                Err(wrong(&format!("dbname={name} would be read as parameters")))
            }
            Some(_) => Ok(all),
        }
    }
}

/// Parts of the names of parameters that no run may keep.
const SECRETS: [&str; 3] = ["password", "secret", "scram_"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::own_arm;

    fn parameters(dsn: &str) -> Result<Vec<(String, String)>, String> {
        OwnArm { dsn: Some(dsn.into()), ..own_arm("far") }.parameters()
    }

    #[test]
    fn a_dsn_names_its_database_and_nothing_twice() {
        let all = parameters("host=db.example  user=lab dbname=lab options=-cwork_mem=9MB");
        let all = all.unwrap();
        assert_eq!(all.len(), 4);
        assert_eq!(all[3], ("options".into(), "-cwork_mem=9MB".into()));
        for (dsn, why) in [
            ("host=a", "no dbname"),
            ("", "no dbname"),
            ("host=a dbname=", "has the form"),
            ("host=a dbname='my lab'", "has the form"),
            ("postgresql://a:b@c/d", "has the form"),
            ("postgresql://a/d?sslmode=x", "has the form"),
            ("dbname=host=b", "read as parameters"),
            ("dbname=postgresql://b", "read as parameters"),
            ("host=a dbname=b host=c", "host is there twice"),
            ("service=mine dbname=b", "service is the lab's own"),
        ] {
            let refused = parameters(dsn).unwrap_err();
            assert!(refused.contains(why) && refused.starts_with("arm `far`, dsn: "), "{refused}");
        }
    }

    #[test]
    fn a_secret_in_a_dsn_is_refused_and_not_told() {
        for key in ["password", "sslpassword", "oauth_client_secret", "scram_client_key"] {
            let refused = parameters(&format!("host=a dbname=b {key}=hush")).unwrap_err();
            assert!(refused.contains(key) && !refused.contains("hush"), "{refused}");
        }
        parameters("host=a dbname=b passfile=/etc/lab/pgpass").unwrap();
    }
}
