//! What a box may reach, as the flags of `run` say it.

use super::flags::Id;
use crate::policy::egress::{
    BundleName, HostPattern, HostPort, Name, Publish, SecretSpec, UpstreamChoice,
};
use crate::policy::file::NetPart;
use crate::policy::{Cap, DeniedPattern, Environment, Later, Net, NetMode, Policy, net_rate};

/// What is wrong, and with which flag.
pub(super) type Wrong = (&'static str, String);

/// Takes one flag in.
pub(super) fn set(net: &mut NetPart, id: Id, text: &str) -> Result<(), String> {
    match id {
        Id::Network => {
            let mode = NetMode::parse(text);
            let mode = mode.ok_or_else(|| format!("`{text}` is not none, allow or host"))?;
            net.mode = Some(mode);
        }
        Id::AllowHost => push(&mut net.allow, HostPattern::parse(text)?),
        Id::DenyHost => push(
            &mut net.deny,
            DeniedPattern(HostPattern::parse_denied(text)?),
        ),
        Id::Bundle => push(&mut net.bundles, BundleName::parse(text)?),
        Id::Publish => push(&mut net.publish, Publish::parse(text)?),
        Id::HostPort => push(&mut net.host_ports, HostPort::parse(text)?),
        Id::Secret => push(&mut net.secrets, Later(Ok(SecretSpec::parse(text)?))),
        Id::TlsAudit => push(
            &mut net.tls_audit,
            Name::parse(text).map_err(|bad| bad.to_string())?,
        ),
        Id::UpstreamProxy => {
            let proxy = match text {
                "none" => Cap::None,
                text => Cap::At(UpstreamChoice::parse(text)?),
            };
            net.upstream_proxy = Some(Later(Ok(proxy)));
        }
        Id::NetRate => net.rate = Some(net_rate(text)?),
        Id::NetConnections => net.connections = Some(connections(text)?),
        _ => {}
    }
    Ok(())
}

fn push<T>(list: &mut Option<Vec<T>>, one: T) {
    list.get_or_insert_default().push(one);
}

fn connections(text: &str) -> Result<u32, String> {
    let plain = text.bytes().all(|b| b.is_ascii_digit());
    text.parse()
        .ok()
        .filter(|number| plain && (1..=Net::MOST_CONNECTIONS).contains(number))
        .ok_or_else(|| {
            let most = Net::MOST_CONNECTIONS;
            format!("`{text}` is not a whole number from 1 to {most}")
        })
}

/// Flags that were given and mean something only where a list of hosts decides, and those that
/// need a network of the box's own.
fn given(net: &NetPart) -> (Vec<Id>, Vec<Id>) {
    let of_list = [
        (net.allow.is_some(), Id::AllowHost),
        (net.bundles.is_some(), Id::Bundle),
        (net.deny.is_some(), Id::DenyHost),
        (net.secrets.is_some(), Id::Secret),
        (net.tls_audit.is_some(), Id::TlsAudit),
        (net.upstream_proxy.is_some(), Id::UpstreamProxy),
        (net.rate.is_some(), Id::NetRate),
        (net.connections.is_some(), Id::NetConnections),
    ];
    let of_own = [
        (net.publish.is_some(), Id::Publish),
        (net.host_ports.is_some(), Id::HostPort),
    ];
    let only = |list: &[(bool, Id)]| -> Vec<Id> {
        list.iter()
            .filter(|(is, _)| *is)
            .map(|(_, id)| *id)
            .collect()
    };
    (only(&of_list), only(&of_own))
}

/// Once all flags are read: what they mean together. Hosts that are named are meant to be reached.
pub(super) fn settle(net: &mut NetPart) -> Result<(), Wrong> {
    if net.mode.is_none() && (net.allow.is_some() || net.bundles.is_some()) {
        net.mode = Some(NetMode::Allow);
    }
    match net.mode {
        Some(mode) => fits(net, mode, "it was given together with"),
        None => Ok(()),
    }
}

/// Once all layers are laid: whether the flags mean anything with the mode they led to.
pub(super) fn check(flags: &NetPart, policy: &Policy) -> Result<(), Wrong> {
    fits(flags, policy.net.mode, "the policy says")
}

fn fits(net: &NetPart, mode: NetMode, why: &str) -> Result<(), Wrong> {
    let (of_list, of_own) = given(net);
    let name = mode.name();
    match mode {
        NetMode::Allow => Ok(()),
        NetMode::None | NetMode::Host if !of_list.is_empty() => Err((
            of_list[0].long(),
            format!("it takes `--network allow`, and {why} `--network {name}`"),
        )),
        NetMode::Host if !of_own.is_empty() => Err((
            of_own[0].long(),
            format!("{why} `--network host`, where the box's ports are this computer's"),
        )),
        NetMode::None | NetMode::Host => Ok(()),
    }
}

/// Reads the proxy from the environment where the policy says so.
pub(super) fn find_proxy(policy: &mut Policy, env: Environment<'_>) -> Result<(), Wrong> {
    let Some(choice) = &policy.net.upstream_proxy else {
        return Ok(());
    };
    if policy.net.mode == NetMode::Allow {
        let proxy = choice.resolve(env);
        let proxy = proxy.map_err(|why| (Id::UpstreamProxy.long(), why))?;
        policy.net.upstream_proxy = Some(UpstreamChoice::At(proxy));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(flags: &[(Id, &str)]) -> Result<NetPart, Wrong> {
        let mut net = NetPart::default();
        for (id, text) in flags {
            set(&mut net, *id, text).map_err(|why| (id.long(), why))?;
        }
        settle(&mut net).map(|()| net)
    }

    #[test]
    fn every_flag_of_the_network_leaves_its_mark() {
        for (id, text) in [
            (Id::Network, "allow"),
            (Id::AllowHost, "a.example"),
            (Id::DenyHost, "a.example"),
            (Id::Bundle, "claude"),
            (Id::UpstreamProxy, "env"),
            (Id::Secret, "A@a.example"),
            (Id::TlsAudit, "a.example"),
            (Id::Publish, "1:2"),
            (Id::HostPort, "1"),
            (Id::NetRate, "1M"),
            (Id::NetConnections, "5"),
        ] {
            assert_ne!(read(&[(id, text)]).unwrap(), NetPart::default(), "{id:?}");
        }
    }

    #[test]
    fn a_host_that_is_named_is_meant_to_be_reached() {
        let mode = |flags: &[(Id, &str)]| read(flags).unwrap().mode;
        assert_eq!(mode(&[(Id::AllowHost, "a.example")]), Some(NetMode::Allow));
        assert_eq!(mode(&[(Id::Bundle, "github")]), Some(NetMode::Allow));
        assert_eq!(mode(&[(Id::DenyHost, "a.example")]), None);
        assert_eq!(mode(&[(Id::Publish, "1:2")]), None);
        let both = [(Id::AllowHost, "a.example"), (Id::Network, "host")];
        assert_eq!(read(&both).unwrap_err().0, "allow-host");
    }
}
