//! Who is where and who writes to whom, decided before anything is connected.
//!
//! The two of a pair, and the members of a room, belong to one thread: so no thread waits for another.

use std::ops::Range;
use std::sync::Arc;

use crate::args::{Args, Placing, Scenario};
use crate::dialect::Target;

/// What one thread has to do.
#[derive(Debug, Default)]
pub(crate) struct Share {
    /// Who connects. Those who do nothing come last.
    pub(crate) users: Vec<User>,
    /// How many of the users do nothing.
    pub(crate) crowd: usize,
    /// Who writes to whom.
    pub(crate) groups: Vec<Group>,
    /// What has to be made before anything is counted.
    pub(crate) rooms: Vec<NewRoom>,
}

/// Somebody who connects.
#[derive(Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    /// Which of the servers.
    pub(crate) server: usize,
    pub(crate) role: Role,
    /// The rooms of which the greeting speaks.
    pub(crate) rooms: Vec<Arc<str>>,
}

/// What somebody is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// What they get is counted.
    Counted,
    /// What they get is not counted: others are not to notice it.
    Apart,
    /// The same, and they stop reading when told to.
    Slow,
}

/// A pair, or a room: its flows take turns.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) flows: Vec<Flow>,
    /// Indices of all its users, who are made one after the other.
    pub(crate) members: Range<usize>,
    /// For how many of the counted each message is.
    pub(crate) recipients: u32,
    /// Writes only when a burst is asked for.
    pub(crate) burst: bool,
}

/// A user who writes.
#[derive(Debug)]
pub(crate) struct Flow {
    /// Index of the user.
    pub(crate) from: usize,
    /// Where to, as the dialect has it.
    pub(crate) target: String,
}

/// A room to be made.
#[derive(Debug)]
pub(crate) struct NewRoom {
    /// Index of the user.
    pub(crate) creator: usize,
    /// What makes it.
    pub(crate) frame: String,
}

struct Planner<'a> {
    args: &'a Args,
    /// Makes the names of this run unlike those of others, which may have left messages behind.
    run: u32,
    shares: Vec<Share>,
    names: u32,
}

/// Divides the work among the threads.
pub(crate) fn plan(args: &Args) -> Vec<Share> {
    let shares = (0..args.threads).map(|_| Share::default()).collect();
    let mut planner = Planner { args, run: rand::random(), shares, names: 0 };
    match args.scenario {
        Scenario::Direct | Scenario::Storm => planner.pairs(args.servers.len()),
        Scenario::Rooms | Scenario::Slow => (0..args.rooms).for_each(|room| planner.room(room as usize)),
        Scenario::Stopped => planner.pairs_around_the_last(),
        Scenario::Burst => {
            planner.pairs(args.servers.len());
            planner.room(0);
        }
        Scenario::Idle => {}
    }
    if args.has_crowd() {
        planner.crowd();
    }
    planner.shares
}

impl Planner<'_> {
    fn user(&mut self, thread: usize, server: usize, role: Role) -> usize {
        self.names += 1;
        let name = format!("u{:08x}-{}", self.run, self.names);
        let users = &mut self.shares[thread].users;
        users.push(User { name, server: server % self.args.servers.len(), role, rooms: Vec::new() });
        users.len() - 1
    }

    /// Pairs on the first so many servers.
    fn pairs(&mut self, servers: usize) {
        for pair in 0..self.args.pairs as usize {
            let server = pair % servers;
            let other = match self.args.place {
                Placing::Cross if servers > 1 => server + 1 + pair / servers % (servers - 1),
                _ => server,
            };
            self.pair(pair, (server, other % servers), Role::Counted);
        }
    }

    /// The last server has recipients only, and these do not count.
    fn pairs_around_the_last(&mut self) {
        let others = self.args.servers.len() - 1;
        self.pairs(others);
        for pair in 0..self.args.pairs as usize / others {
            self.pair(pair, (pair % others, others), Role::Apart);
        }
    }

    fn pair(&mut self, pair: usize, (server, other): (usize, usize), role: Role) {
        let (dialect, thread) = (self.args.dialect, pair % self.pair_threads());
        let from = self.user(thread, server, role);
        let to = self.user(thread, other, role);
        let share = &mut self.shares[thread];
        let target = dialect.target(Target::User(&share.users[to].name));
        if self.args.is_durable() {
            // The first message of a pair makes their room, which costs more than the message.
            let first = dialect.first_message(&target);
            share.rooms.extend(first.map(|frame| NewRoom { creator: from, frame }));
        }
        let recipients = u32::from(role == Role::Counted);
        share.groups.push(Group {
            flows: vec![Flow { from, target }],
            members: from..to + 1,
            recipients,
            burst: false,
        });
    }

    /// The threads of pairs. A room with a burst has the last one for itself, where there are several: what the others
    /// get must not wait for a thread that is busy with the burst.
    fn pair_threads(&self) -> usize {
        let threads = self.shares.len();
        if self.args.scenario == Scenario::Burst { (threads - 1).max(1) } else { threads }
    }

    fn room(&mut self, room: usize) {
        let (dialect, threads) = (self.args.dialect, self.shares.len());
        let thread = if self.args.scenario == Scenario::Burst { threads - 1 } else { room % threads };
        let roles = self.roles();
        let members: Vec<usize> =
            roles.iter().enumerate().map(|(member, &role)| self.user(thread, room + member, role)).collect();
        let name: Arc<str> = format!("r{:08x}-{room}", self.run).into();
        let target = dialect.target(Target::Room(&name));
        let share = &mut self.shares[thread];
        if dialect.users_join() {
            members.iter().for_each(|&member| share.users[member].rooms.push(Arc::clone(&name)));
        }
        let writers = members.iter().zip(&roles).filter(|(_, role)| **role != Role::Slow);
        let flows = writers.map(|(&from, _)| Flow { from, target: target.clone() }).collect();
        let counted = roles.iter().filter(|role| **role == Role::Counted).count() as u32;
        let burst = self.args.scenario == Scenario::Burst;
        let all = members[0]..members[0] + members.len();
        share.groups.push(Group { flows, members: all, recipients: counted.saturating_sub(1), burst });
        let others: Vec<String> = members[1..].iter().map(|&member| share.users[member].name.clone()).collect();
        let create = dialect.create(&name, &others);
        share.rooms.extend(create.map(|frame| NewRoom { creator: members[0], frame }));
    }

    /// Those of a room's members.
    fn roles(&self) -> Vec<Role> {
        let size = self.args.room_size as usize;
        let (role, slow) = match self.args.scenario {
            Scenario::Slow => (Role::Counted, self.args.slow as usize),
            Scenario::Burst => (Role::Apart, 0),
            _ => (Role::Counted, 0),
        };
        (0..size).map(|member| if member >= size - slow { Role::Slow } else { role }).collect()
    }

    /// Connections that do nothing, with their rooms. These are made beforehand by a user of each thread who is in all
    /// that he makes.
    fn crowd(&mut self) {
        let (dialect, threads) = (self.args.dialect, self.shares.len());
        let greets = self.args.cursors || dialect.users_join();
        let hosts: Vec<usize> = (0..threads).map(|thread| self.user(thread, thread, Role::Counted)).collect();
        let crowd: Vec<(usize, usize)> = (0..self.args.connections as usize)
            .map(|number| (number % threads, self.user(number % threads, number, Role::Counted)))
            .collect();
        self.shares.iter_mut().zip(&hosts).for_each(|(share, host)| share.crowd = share.users.len() - host - 1);
        for (number, members) in crowd_rooms(self.args, crowd.len()).into_iter().enumerate() {
            let room: Arc<str> = format!("c{:08x}-{number}", self.run).into();
            let mut names = Vec::new();
            for (thread, user) in members.iter().map(|member| crowd[*member]) {
                let user = &mut self.shares[thread].users[user];
                names.push(user.name.clone());
                user.rooms.extend(greets.then(|| Arc::clone(&room)));
            }
            let thread = number % threads;
            let create = dialect.create(&room, &names);
            self.shares[thread].rooms.extend(create.map(|frame| NewRoom { creator: hosts[thread], frame }));
        }
    }
}

/// As many blocks of rooms as each user is to be in; every user is in one room of each block, and beside others in each.
fn crowd_rooms(args: &Args, crowd: usize) -> Vec<Vec<usize>> {
    let per_block = (crowd / args.room_size as usize).max(1);
    let mut rooms = vec![Vec::new(); per_block * args.rooms_each as usize];
    for block in 0..args.rooms_each as usize {
        for user in 0..crowd {
            rooms[block * per_block + (user + block * (user / per_block)) % per_block].push(user);
        }
    }
    rooms
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use clap::Parser;

    use super::*;

    fn shares(line: &str) -> Vec<Share> {
        plan(&Args::parse_from(line.split(' ')))
    }

    #[test]
    fn pairs_across_servers_use_each_ordered_pair_of_servers_alike() {
        let shares = shares("load direct --pairs 24 --server 127.0.0.1:1,127.0.0.1:2,127.0.0.1:3 --threads 2");
        let mut uses: HashMap<(usize, usize), u32> = HashMap::new();
        for share in &shares {
            share.users.chunks(2).for_each(|pair| *uses.entry((pair[0].server, pair[1].server)).or_default() += 1);
        }
        assert_eq!(uses.len(), 6);
        assert!(uses.iter().all(|((one, other), count)| one != other && *count == 4), "{uses:?}");
    }

    #[test]
    fn a_server_that_is_to_be_stopped_has_recipients_that_do_not_count() {
        let line = "load stopped --stop 1 --rate 10 --pairs 20 --server 127.0.0.1:1,127.0.0.1:2,127.0.0.1:3";
        let share = &shares(line)[0];
        assert!(share.users.iter().all(|user| user.server < 2 || user.role == Role::Apart));
        assert_eq!(share.groups.iter().filter(|group| group.recipients == 0).count(), 10);
    }

    #[test]
    fn each_of_a_crowd_is_in_as_many_rooms_as_asked() {
        let args = Args::parse_from("load idle --connections 60 --rooms-each 3 --room-size 10".split(' '));
        let rooms = crowd_rooms(&args, 60);
        assert!(rooms.len() == 18 && rooms.iter().all(|room| room.len() == 10), "{rooms:?}");
        assert!((0..60).all(|user| rooms.iter().filter(|room| room.contains(&user)).count() == 3));
    }

    #[test]
    fn who_is_slow_neither_writes_nor_counts() {
        let shares = shares("load slow --rooms 1 --room-size 5 --slow 2");
        let group = &shares[0].groups[0];
        assert_eq!((group.flows.len(), group.recipients), (3, 2));
        assert!(group.flows.iter().all(|flow| shares[0].users[flow.from].role == Role::Counted));
    }
}
