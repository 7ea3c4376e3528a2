//! Who gets what from where: decided without I/O.

use crate::ids::{ServerId, UserId};

/// What one server is to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// For whom.
    pub(super) recipients: Vec<UserId>,
    /// The registry does not name the server; it is asked all the same, since its users may be missing there.
    pub(super) asked: bool,
}

/// Divides an audience among the other servers: each that holds some of them gets one share with just these, and each
/// that must be `asked` as well gets one with all. In the order of the servers' ids.
pub(super) fn plan<'a, P: Iterator<Item = &'a ServerId>>(
    own: &ServerId,
    audience: impl Iterator<Item = &'a UserId> + Clone,
    places: impl Fn(&'a UserId) -> P,
    asked: &[ServerId],
) -> Vec<(ServerId, Share)> {
    let mut shares = Vec::new();
    for user in audience.clone() {
        for server in places(user).filter(|server| *server != own) {
            share_of(&mut shares, server).recipients.push(user.clone());
        }
    }
    for server in asked.iter().filter(|server| *server != own) {
        *share_of(&mut shares, server) = Share { recipients: audience.clone().cloned().collect(), asked: true };
    }
    shares
}

/// The share of a server, among shares in the order of the servers' ids. Most messages are for few servers.
fn share_of<'a>(shares: &'a mut Vec<(ServerId, Share)>, server: &ServerId) -> &'a mut Share {
    let place = shares.binary_search_by(|(other, _)| other.cmp(server)).unwrap_or_else(|place| {
        shares.insert(place, (server.clone(), Share { recipients: Vec::new(), asked: false }));
        place
    });
    &mut shares[place].1
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn names<T: std::str::FromStr>(names: &[&str]) -> Vec<T>
    where
        T::Err: std::fmt::Debug,
    {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    fn planned(places: &[(&str, &[&str])], asked: &[&str]) -> Vec<(String, Vec<String>, bool)> {
        let audience: Vec<UserId> = places.iter().map(|(user, _)| user.parse().unwrap()).collect();
        let places: HashMap<UserId, Vec<ServerId>> =
            places.iter().map(|(user, servers)| (user.parse().unwrap(), names(servers))).collect();
        let own = "local1".parse().unwrap();
        let shares = plan(&own, audience.iter(), |user| places.get(user).unwrap().iter(), &names(asked));
        let text = |share: &Share| share.recipients.iter().map(ToString::to_string).collect();
        shares.iter().map(|(server, share)| (server.to_string(), text(share), share.asked)).collect()
    }

    #[test]
    fn each_server_that_holds_recipients_gets_one_share_with_just_these_and_no_other_gets_any() {
        let places: &[(&str, &[&str])] =
            &[("a", &["local1"]), ("b", &["local2"]), ("c", &["local2", "local3"]), ("d", &[])];
        let shares = planned(places, &[]);
        let expected =
            [("local2".into(), vec!["b".into(), "c".into()], false), ("local3".into(), vec!["c".into()], false)];
        assert_eq!(shares, expected);
    }

    #[test]
    fn a_server_that_cannot_register_its_users_is_asked_for_all_once() {
        let shares = planned(&[("a", &["local1"]), ("b", &["local2"]), ("c", &[])], &["local2", "local1"]);
        assert_eq!(shares, [("local2".into(), vec!["a".into(), "b".into(), "c".into()], true)]);
    }
}
