//! A server elsewhere: a schema of the lab's own there, and proof that its tools work in it.
//!
//! Tools name no schema, pgbench above all, which drops tables of its names before it makes them.
//! `search_path` keeps them in the lab's schema, and a pooler between may drop that. So the server
//! says that it is in force before anything is made or dropped. Then pgbench finds the lab's mark
//! on its current schema before it makes a table: the same schema, database and server.

use serde::Deserialize;
use tidelock_servers::{Cluster, Workspace};

use crate::error::{Error, Result};
use crate::experiment::OwnArm;
use crate::work::reason;

/// Reaches the server of an arm and makes the lab's schema there. What a killed lab left in it
/// goes.
///
/// # Errors
/// [`Error::Unreachable`] with the server's reason, [`Error::NotOurs`] where the lab would not be
/// among its own; nothing was changed then.
pub(super) fn reach<'p>(place: &'p Workspace, own: &OwnArm) -> Result<Cluster<'p>> {
    let mut parameters = own.parameters().map_err(Error::Other)?;
    keep_in_schema(&mut parameters);
    let cluster = Cluster::elsewhere(place, &own.name, &parameters)?;
    let far = Far { arm: &own.name, cluster: &cluster };
    let found = far.found()?;
    far.check(&found)?;
    far.make_schema()?;
    if let Err(why) = far.check_pgbench(&found.user) {
        let _ = leave(&own.name, &cluster);
        return Err(why);
    }
    Ok(cluster)
}

/// Drops the schema that [`reach`] made, unless another lab has made it again.
///
/// # Errors
/// [`Error::Unreachable`]: the schema is left there.
pub(super) fn leave(arm: &str, cluster: &Cluster<'_>) -> Result<()> {
    let far = Far { arm, cluster };
    match far.found()?.mark == Some(mark(cluster)) {
        true => far.sql(&drop_ours()).map(drop),
        false => Ok(()),
    }
}

/// SQL that drops the lab's schema, and fails where that would take along something outside of it:
/// an extension that an arm made lies in the schema, and others may have tables by it since.
fn drop_ours() -> String {
    let others = format!(
        "SELECT count(*) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid \
         JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE NOT a.attisdropped AND n.nspname <> '{SCHEMA}' AND n.nspname !~ '^pg_'"
    );
    format!(
        "DO $$ DECLARE others bigint; BEGIN others := ({others}); \
         DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; \
         IF ({others}) < others THEN RAISE EXCEPTION \
         'tables outside of the schema {SCHEMA} depend on what is in it'; END IF; END $$"
    )
}

/// The server of an arm.
struct Far<'c, 'p> {
    arm: &'c str,
    cluster: &'c Cluster<'p>,
}

/// What a connection of psql finds.
#[derive(Deserialize)]
struct Found {
    search_path: String,
    user: String,
    /// Whether there is a schema of the lab's name.
    has_schema: bool,
    /// What is written on it.
    mark: Option<String>,
}

impl Far<'_, '_> {
    fn found(&self) -> Result<Found> {
        let told = self.sql(&format!(
            "SELECT json_build_object('search_path', current_setting('search_path'), \
             'user', session_user, 'has_schema', count(*) > 0, \
             'mark', max(obj_description(oid, 'pg_namespace'))) \
             FROM pg_namespace WHERE nspname = '{SCHEMA}'"
        ))?;
        let broken = |why| self.unreachable(&format!("it answers {told:?}: {why}"));
        serde_json::from_str(told.trim()).map_err(broken)
    }

    fn check(&self, found: &Found) -> Result<()> {
        if found.search_path != SCHEMA {
            return Err(self.not_ours(format!(
                "its connections have the search_path {:?} and not the lab's, as if a pooler \
                 dropped `options`",
                found.search_path
            )));
        }
        match &found.mark {
            Some(mark) if *mark == self::mark(self.cluster) => {
                Err(self.not_ours("it is the database of another arm"))
            }
            Some(mark) if mark.starts_with(MARK) => Ok(()),
            _ if found.has_schema => Err(self.not_ours(format!(
                "it has a schema {SCHEMA} without the mark of a lab: drop it if nobody needs it"
            ))),
            _ => Ok(()),
        }
    }

    /// Both or neither: a schema without the mark would be in the way of the next lab.
    fn make_schema(&self) -> Result<()> {
        let (mark, drop_ours) = (mark(self.cluster), drop_ours());
        self.sql(&format!(
            "BEGIN; {drop_ours}; CREATE SCHEMA {SCHEMA}; \
             COMMENT ON SCHEMA {SCHEMA} IS '{mark}'; COMMIT"
        ))
        .map(drop)
    }

    /// What pgbench would make is in the lab's schema, and `user` makes it. A server that says no
    /// says so in an error: of what a script selects pgbench prints nothing.
    fn check_pgbench(&self, user: &str) -> Result<()> {
        let (mark, user) = (mark(self.cluster), user.replace('\'', "''"));
        let script = format!(
            "SELECT CASE WHEN current_schema() = '{SCHEMA}' AND session_user = '{user}' AND \
             (SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace \
             WHERE nspname = current_schema()) = '{mark}' THEN 1 ELSE \
             CAST(concat('schema ', current_schema(), ' of database ', current_database(), \
             ', as ', session_user) AS integer) END;\n"
        );
        let place = self.cluster.workspace();
        let path = place.join(SCRIPT);
        place.write(&path, &script)?;
        let pgbench = self.cluster.client("pgbench").args(["-n", "-c", "1", "-j", "1", "-t", "1"]);
        let output = pgbench.arg("-f").arg(path).attempt()?;
        if output.status.success() {
            return Ok(());
        }
        Err(self.not_ours(format!("pgbench would not be in the lab's schema: {}", reason(&output))))
    }

    fn sql(&self, text: &str) -> Result<String> {
        let output = self.cluster.psql("", text).attempt()?;
        match output.status.success() {
            true => Ok(output.stdout),
            false => Err(self.unreachable(&reason(&output))),
        }
    }

    fn unreachable(&self, why: &str) -> Error {
        Error::Unreachable { arm: self.arm.into(), why: why.into() }
    }

    fn not_ours(&self, why: impl Into<String>) -> Error {
        Error::NotOurs { arm: self.arm.into(), why: why.into() }
    }
}

/// Adds the lab's schema to the options of the user's: the last setting of a name counts, and it
/// counts more than what a role or a database has.
fn keep_in_schema(parameters: &mut Vec<(String, String)>) {
    let ours = format!("-c search_path={SCHEMA}");
    match parameters.iter_mut().find(|(key, _)| key == "options") {
        Some((_, theirs)) => *theirs += &format!(" {ours}"),
        None => parameters.push(("options".into(), ours)),
    }
}

/// What the lab of this ground writes on its schema.
fn mark(cluster: &Cluster<'_>) -> String {
    let place = cluster.workspace().path().file_name().unwrap_or_default();
    format!("{MARK}{}", place.to_string_lossy().replace('\'', ""))
}

/// Where the lab's tables are on a server elsewhere.
pub(super) const SCHEMA: &str = "tidelock_lab";
/// How the mark of a lab begins.
const MARK: &str = "tidelock-lab ";
/// Name of pgbench's script; no arm has a name with a dot.
const SCRIPT: &str = "elsewhere.sql";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_user_s_keep_no_tool_out_of_the_lab_s_schema() {
        let options = |all: &[(&str, &str)]| {
            let mut all: Vec<(String, String)> =
                all.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
            keep_in_schema(&mut all);
            let mut all = all.into_iter().filter(|(key, _)| key == "options");
            (all.next().unwrap().1, all.count())
        };
        let ours = "-c search_path=tidelock_lab";
        assert_eq!(options(&[("host", "a")]), (ours.to_owned(), 0));
        let theirs = ("options", "-csearch_path=public");
        let both = (format!("-csearch_path=public {ours}"), 0);
        assert_eq!(options(&[theirs, ("host", "a")]), both);
    }
}
