//! The servers of a ground: one for each arm, filled alike, all running while their cells are measured.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use tidelock_servers::mariadb::MariaDb;
use tidelock_servers::{Cluster, Place};

use super::Progress;
use crate::arm::Definition;
use crate::error::{Error, Result};
use crate::plan::Ground;

/// The servers of a ground.
#[derive(Debug)]
pub(super) struct Servers<'p> {
    pub(super) servers: Vec<Server<'p>>,
    settings: Option<BTreeMap<String, String>>,
}

/// One arm's server.
#[derive(Debug)]
pub(super) struct Server<'p> {
    pub(super) arm: Definition,
    /// None where the cipher alone is measured, or MariaDB.
    pub(super) cluster: Option<Cluster<'p>>,
    pub(super) maria: Option<MariaDb<'p>>,
}

impl<'p> Servers<'p> {
    /// Arms without servers.
    pub(super) fn none(arms: Vec<Definition>) -> Self {
        let server = |arm| Server { arm, cluster: None, maria: None };
        Self { servers: arms.into_iter().map(server).collect(), settings: None }
    }

    /// Makes, starts and fills a PostgreSQL for each arm.
    ///
    /// # Errors
    /// When one of them fails; those that run are stopped.
    pub(super) fn postgres(
        place: &'p Place,
        arms: Vec<Definition>,
        ground: &Ground,
        stop: &AtomicBool,
        progress: &mut dyn Progress,
    ) -> Result<Self> {
        let mut servers = Vec::new();
        for arm in arms {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            progress.preparing(&filling(&arm, ground));
            servers.push(Server::postgres(place, arm, ground, stop)?);
        }
        Ok(Self { servers, settings: Some(ground.settings.clone()) })
    }

    /// Makes and starts a MariaDB for each arm; its workload fills it.
    ///
    /// # Errors
    /// As [`Servers::postgres`].
    pub(super) fn mariadb(
        place: &'p Place,
        arms: Vec<Definition>,
        ground: &Ground,
        stop: &AtomicBool,
        progress: &mut dyn Progress,
    ) -> Result<Self> {
        let mut servers = Vec::new();
        for arm in arms {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            progress.preparing(&filling(&arm, ground));
            let maria = super::maria::make(place, &arm, directory(&arm), &ground.settings)?;
            servers.push(Server { arm, cluster: None, maria: Some(maria) });
        }
        Ok(Self { servers, settings: Some(ground.settings.clone()) })
    }

    /// Restarts all servers if they have other settings.
    ///
    /// # Errors
    /// When one does not come up again.
    pub(super) fn set(&mut self, settings: &BTreeMap<String, String>) -> Result<()> {
        if self.settings.as_ref().is_none_or(|now| now == settings) {
            return Ok(());
        }
        for server in &self.servers {
            if let Some(maria) = &server.maria {
                super::maria::set(maria, settings)?;
            }
            let Some(cluster) = &server.cluster else { continue };
            for (name, value) in settings {
                cluster.set(name, value)?;
            }
            cluster.restart()?;
        }
        self.settings = Some(settings.clone());
        Ok(())
    }

    pub(super) fn of(&self, arm: &str) -> Result<&Server<'p>> {
        self.servers
            .iter()
            .find(|server| server.arm.name == arm)
            .ok_or_else(|| Error::Other(format!("no server was made for the arm {arm}")))
    }
}

impl<'p> Server<'p> {
    fn postgres(
        place: &'p Place,
        arm: Definition,
        ground: &Ground,
        stop: &AtomicBool,
    ) -> Result<Self> {
        let mut cluster =
            Cluster::at(place, &arm.name, arm.arm)?.with(arm.bin.clone(), arm.env.clone());
        if let Some(dir) = directory(&arm) {
            cluster = cluster.on(dir);
        }
        cluster.make(&["-k", "-N"])?;
        for (name, value) in &ground.settings {
            cluster.set(name, value)?;
        }
        cluster.start()?;
        fill(&cluster, ground, stop)?;
        Ok(Self { arm, cluster: Some(cluster), maria: None })
    }
}

/// Where the data directory lies if not in the place.
fn directory(_arm: &Definition) -> Option<PathBuf> {
    None
}

fn fill(cluster: &Cluster<'_>, ground: &Ground, stop: &AtomicBool) -> Result<()> {
    if ground.scale > 0 {
        let scale = ground.scale.to_string();
        let fill = cluster.client("pgbench").args(["-i", "-q", "-s", &scale]).limit(24 * 3600);
        crate::work::run(fill.log(cluster.log()), stop)?;
    }
    let text = format!("{};\nVACUUM FREEZE;\nCHECKPOINT", ground.setup);
    crate::work::run(cluster.psql("postgres", &text).limit(24 * 3600).log(cluster.log()), stop)?;
    Ok(())
}

fn filling(arm: &Definition, ground: &Ground) -> String {
    match ground.scale {
        0 => format!("making the server {}", arm.name),
        scale => format!("making the server {}, scale {scale}", arm.name),
    }
}
