//! What Patroni's REST interface says and takes.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;
use tidelock_servers::{Error, Result, ensure};

/// Patroni answers a switchover when it is done.
const LIMIT: Duration = Duration::from_secs(300);
const PORT: u16 = 8008;

/// A node as the cluster sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// `leader`, `sync_standby`, `replica`.
    pub role: String,
    /// `running`, `streaming`, `starting` ...
    pub state: String,
    /// Its timeline, if it has one.
    pub timeline: Option<u64>,
}

/// All members, as the node at `address` knows them.
pub(super) fn members(address: &str) -> Result<Vec<Member>> {
    let (code, body) = ask(address, "GET", "/cluster", "")?;
    ensure(code == 200, || format!("{address} answers {code}: {body}"))?;
    let told: Value = serde_json::from_str(&body)
        .map_err(|why| Error::Unexpected(format!("{address} says no JSON: {why}: {body}")))?;
    let word = |member: &Value, key: &str| member[key].as_str().unwrap_or_default().to_owned();
    let all = told["members"].as_array().cloned().unwrap_or_default();
    Ok(all
        .iter()
        .map(|member| Member {
            name: word(member, "name"),
            role: word(member, "role"),
            state: word(member, "state"),
            timeline: member["timeline"].as_u64(),
        })
        .collect())
}

/// Has the node at `address` do something; its code and what it says.
pub(super) fn post(address: &str, path: &str, body: &str) -> Result<(u16, String)> {
    ask(address, "POST", path, body)
}

/// The leader that is running, if there is exactly one.
pub(super) fn leader(members: &[Member]) -> Option<String> {
    let mut leaders = members.iter().filter(|member| member.role == "leader");
    let leader = leaders.next().filter(|member| member.state == "running")?;
    leaders.next().is_none().then(|| leader.name.clone())
}

/// The leader, if all are well.
pub(super) fn leader_of_a_whole(members: &[Member], number: usize) -> Option<String> {
    let leader = leader(members)?;
    let runs = |member: &Member| matches!(member.state.as_str(), "running" | "streaming");
    let timeline = members.first()?.timeline?;
    let same = |member: &Member| member.timeline == Some(timeline);
    let synchronous = members.iter().filter(|member| member.role == "sync_standby").count();
    let whole = members.len() == number && synchronous == 1;
    (whole && members.iter().all(runs) && members.iter().all(same)).then_some(leader)
}

fn ask(address: &str, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
    let failed = |why| Error::io(format!("{method} {path} of {address}"))(why);
    let answer = exchange(address, method, path, body).map_err(failed)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Ok((code, body.to_owned()))
}

fn exchange(address: &str, method: &str, path: &str, body: &str) -> io::Result<String> {
    let address: SocketAddr = format!("{address}:{PORT}").parse().map_err(io::Error::other)?;
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let length = body.len();
    write!(stream, "{method} {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
