//! An experiment as its TOML file says it: question, arms, factors, workloads, settings, stop rule,
//! claims.
//!
//! ```toml
//! [factors]
//! shared_buffers = ["1MB", "8MB"]         # every combination of levels and workloads is a cell
//! [settings]
//! shared_buffers = "{shared_buffers}"     # a level, by the name of its factor
//! [size.published.factors]                # a size replaces what it names
//! shared_buffers = ["1MB", "8MB", "512MB"]
//! ```
//!
//! Unknown keys are refused, with the line. Nothing here starts anything.

mod claim;
mod dsn;
mod names;
mod numbers;
mod param;
mod read;
mod work;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidelock_servers::mysqld::Brand;

pub use claim::{Claim, Expectation, LevelsAgainst};
pub use param::Param;
pub use read::{BUILT_IN, read};
pub use work::{Billing, Crypto, Mysqlslap, Pgbench, Script, Sql, Sysbench, SysbenchScript, Work};

/// One experiment, resolved to a size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Name on the command line.
    pub name: String,
    /// What it answers, as a question.
    pub question: String,
    /// How it differs from what was published, and what it cannot tell.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Files of `published/` that it answers.
    #[serde(default)]
    pub published: Vec<String>,
    /// Server under test.
    pub engine: Engine,
    /// Names of the arms; the first one is the base that all are compared with.
    pub arms: Vec<String>,
    /// Arms of its own: another build, other CPU instructions.
    #[serde(default, rename = "arm")]
    pub own_arms: Vec<OwnArm>,
    /// Levels by the name of a factor.
    #[serde(default)]
    pub factors: BTreeMap<String, Vec<Param>>,
    /// Which published factors and levels those of this size stand for, by the name of a factor.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stands_for: BTreeMap<String, StandsFor>,
    /// Settings of the server in all arms.
    #[serde(default)]
    pub settings: BTreeMap<String, Param>,
    /// Limits on the server by the kernel.
    #[serde(default)]
    pub limits: Limits,
    /// Workloads by name.
    pub workload: BTreeMap<String, Work>,
    /// How much is measured.
    pub stop: Stop,
    /// What was published, to be judged.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
}

/// What a factor stands for in the published tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandsFor {
    /// Its published name, if that is another one.
    #[serde(default)]
    pub factor: Option<String>,
    /// The published level by ours; one that is not named stands for itself.
    #[serde(default)]
    pub levels: BTreeMap<String, Param>,
}

impl Experiment {
    /// The published name of a factor.
    #[must_use]
    pub fn stands_for<'a>(&'a self, factor: &'a str) -> &'a str {
        let named = self.stands_for.get(factor).and_then(|stands| stands.factor.as_deref());
        named.unwrap_or(factor)
    }

    /// The published level that one of ours stands for.
    #[must_use]
    pub fn published_level<'a>(&'a self, factor: &str, level: &'a str) -> &'a str {
        let named = self.stands_for.get(factor).and_then(|stands| stands.levels.get(level));
        named.map_or(level, |Param(level)| level)
    }

    /// Whether levels of a factor stand for others.
    #[must_use]
    pub fn stands_in(&self, factor: &str) -> bool {
        self.stands_for.contains_key(factor)
    }

    /// Why the CPU time of these arms cannot be compared; `None` if it can. What the kernel does
    /// for a directory of the user's is in no arm's CPU time, and so has to be there for all.
    #[must_use]
    pub fn uncounted(&self, arms: &[&str]) -> Option<String> {
        let own = |name: &str| self.own_arms.iter().find(|own| own.name == name);
        let on = |name: &str| own(name).and_then(|own| own.on.as_deref());
        let encrypted = arms.iter().find(|name| own(name).is_some_and(OwnArm::kernel_encrypts));
        let elsewhere = || {
            let differ = arms.windows(2).any(|two| on(two[0]) != on(two[1]));
            arms.iter().find(|name| differ && on(name).is_some())
        };
        let name = encrypted.or_else(elsewhere)?;
        Some(format!("CPU time of {name} is not counted: threads of the kernel have a part of it"))
    }
}

/// Size of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Size {
    /// Seconds: shows that everything works, says nothing of cost.
    Miniature,
    /// Fits two cores and minutes.
    #[default]
    Small,
    /// As published, memory scaled where the file says so.
    Published,
}

/// Server under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// PostgreSQL.
    Postgresql,
    /// MariaDB.
    Mariadb,
    /// MySQL.
    Mysql,
    /// No server: the cipher alone.
    None,
}

impl Engine {
    /// Which of the two it is, if it is MariaDB or MySQL.
    #[must_use]
    pub const fn brand(self) -> Option<Brand> {
        match self {
            Self::Mariadb => Some(Brand::MariaDb),
            Self::Mysql => Some(Brand::MySql),
            Self::Postgresql | Self::None => None,
        }
    }
}

/// An arm that an experiment, or the user, adds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnArm {
    /// Name; may be used in `arms`.
    pub name: String,
    /// What it is, for people.
    pub title: String,
    /// The built-in arm that it changes: `plain`, `idle`, `sealed`, `gocryptfs`, `own`.
    pub like: String,
    /// Directory of the server's programs, for another build.
    #[serde(default)]
    pub bin: Option<String>,
    /// Variables of the server's environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// CPU features without which it says nothing, such as `vaes`.
    #[serde(default)]
    pub needs_cpu: Vec<String>,
    /// Settings of its server beside those of the experiment.
    #[serde(default)]
    pub settings: BTreeMap<String, Param>,
    /// Arguments of initdb beside the lab's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub initdb: Vec<String>,
    /// SQL that is run once after its first start, before any table is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sql: Option<String>,
    /// Restart it after `sql`: some settings hold from the next start on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restart: bool,
    /// Directory below which its data directory is made: on LUKS, fscrypt, ZFS, whatever is mounted
    /// there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// A volume of its own for its data directory, of the size that the limits say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeType>,
    /// A server elsewhere, as libpq's `key=value` parameters, without a password. The lab starts
    /// nothing then, and measures throughput and latency alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dsn: Option<String>,
}

/// What the lab makes on a loop device for an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeType {
    /// ext4, as the base for the others.
    Ext4,
    /// ext4 on LUKS: dm-crypt below the file system.
    Luks,
    /// ext4 with a directory under fscrypt.
    Fscrypt,
}

impl OwnArm {
    /// Whether the lab puts it on a volume that the kernel encrypts, in threads of its own.
    #[must_use]
    pub const fn kernel_encrypts(&self) -> bool {
        matches!(self.volume, Some(VolumeType::Luks | VolumeType::Fscrypt))
    }
}

/// Limits set by cgroups on the server's processes, and its volume; absent means none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Processors, as a decimal number (`0.5`).
    pub cpus: Option<Param>,
    /// Memory with the page cache, in MiB.
    pub memory_mib: Option<Param>,
    /// Reads a second and writes a second, each.
    pub iops: Option<Param>,
    /// Bytes read a second and written a second, each, in MiB.
    pub throughput_mib: Option<Param>,
    /// A loop device for the data directory: `ext4` or `xfs`.
    pub volume: Option<Param>,
    /// Its size in MiB; also that of the volumes of arms.
    pub volume_mib: Option<Param>,
}

/// How much is measured: fixed before the first trial, whatever is seen on the way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// Blocks of each cell; at least 10 for publication.
    pub blocks: u32,
    /// The most seconds of warm-up for each server and cell; docs/lab.md has the rule.
    #[serde(default = "warm_up")]
    pub warm_up: u32,
    /// Blocks of the trials at a fixed rate; none if 0.
    #[serde(default)]
    pub latency_blocks: u32,
    /// Blocks of equal work, of workloads of pgbench and of sysbench's transactions; none if 0.
    #[serde(default)]
    pub equal_work_blocks: u32,
    /// Slices of each server in such a block, an even number: in each pair of rounds every order is
    /// there with its reverse. A quantile is that of all slices of a block.
    #[serde(default = "rounds")]
    pub equal_work_rounds: u32,
    /// The part of the plain server's capacity that equal work asks for.
    #[serde(default = "equal_work_rate")]
    pub equal_work_rate: Param,
    /// Servers of each arm, 1, 2 or 4. With several a difference between servers is not taken for
    /// one between arms, and with four it is known well. plain and control share them, and have one
    /// each at least.
    #[serde(default = "one_server")]
    pub servers: u32,
    /// Blocks of equal work end where half the width of the control's interval is within this part
    /// of 1, whatever the other arms show; then `equal_work_blocks` is the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_precision: Option<f64>,
}

const fn rounds() -> u32 {
    4
}

/// Low enough that no server queues.
fn equal_work_rate() -> Param {
    Param::from("0.4")
}

const fn one_server() -> u32 {
    1
}

const fn warm_up() -> u32 {
    10
}
