//! How client programs reach a server that is not ours: by a connection service and a database.
//!
//! libpq takes all parameters from the service but for the database of programs that name one
//! themselves: pgbench takes that of PGDATABASE, else one with the name of the account. So the
//! database is told twice, and both are the same.

use std::env;
use std::path::PathBuf;

use crate::error::{Result, ensure};
use crate::tool::Tool;
use crate::workspace::Workspace;

/// The parameters of one server, in a file of their own.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    file: PathBuf,
    database: String,
}

impl Service {
    /// Writes the file.
    ///
    /// # Errors
    /// When it cannot be written, a parameter is there twice or cannot stand in such a file, or
    /// none names the database.
    pub(crate) fn write(
        workspace: &Workspace,
        name: &str,
        parameters: &[(String, String)],
    ) -> Result<Self> {
        let mut text = format!("[{SERVICE}]\n");
        for (at, (key, value)) in parameters.iter().enumerate() {
            let is_key = |letter: char| letter.is_ascii_lowercase() || letter == '_';
            ensure(key.chars().all(is_key) && !value.contains('\n'), || {
                format!("{key} cannot stand in a connection service file")
            })?;
            // libpq keeps the first.
            let before = parameters.iter().take(at);
            ensure(before.into_iter().all(|(other, _)| other != key), || {
                format!("the parameter {key} is there twice")
            })?;
            text += &format!("{key}={value}\n");
        }
        let database = parameters.iter().find(|(key, _)| key == "dbname");
        let database = database.map(|(_, value)| value.clone()).unwrap_or_default();
        ensure(is_plain(&database), || format!("{database:?} is no name of a database"))?;
        let file = workspace.join(&format!("home/{name}.service"));
        workspace.write(&file, &text)?;
        Ok(Self { file, database })
    }

    /// The program, with its way there and the password that PGPASSWORD has here.
    pub(crate) fn reached_by<'p>(&self, program: Tool<'p>) -> Tool<'p> {
        let program = program
            .env("PGSERVICEFILE", &self.file)
            .env("PGSERVICE", SERVICE)
            .env("PGDATABASE", &self.database);
        match env::var_os("PGPASSWORD") {
            Some(password) => program.secret_env("PGPASSWORD", password),
            None => program,
        }
    }
}

/// Whether libpq takes it for a name: another one would be read as a list of parameters.
fn is_plain(database: &str) -> bool {
    !database.is_empty() && !database.contains('=') && !database.contains("://")
}

/// Name of the only service in its file.
const SERVICE: &str = "lab";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_libpq_would_read_otherwise_are_refused() {
        let place = Workspace::new().unwrap();
        let write = |parameters: &[(&str, &str)]| {
            let all: Vec<(String, String)> =
                parameters.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
            Service::write(&place, "far", &all).map_err(|why| why.to_string())
        };
        let service = write(&[("host", "a"), ("dbname", "lab")]).unwrap();
        assert_eq!(service.database, "lab");
        let text = std::fs::read_to_string(&service.file).unwrap();
        assert_eq!(text, "[lab]\nhost=a\ndbname=lab\n");
        for (parameters, why) in [
            (&[("host", "a")][..], "is no name of a database"),
            (&[("dbname", "host=b")], "is no name of a database"),
            (&[("dbname", "postgresql://b/c")], "is no name of a database"),
            (&[("dbname", "a"), ("options", "-ca=b"), ("options", "-cc=d")], "is there twice"),
            (&[("dbname", "a"), ("#host", "b")], "cannot stand"),
            (&[("dbname", "a"), ("[b]", "c")], "cannot stand"),
            (&[("dbname", "a"), ("host", "b\nport=1")], "cannot stand"),
        ] {
            let refused = write(parameters).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
