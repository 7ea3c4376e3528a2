//! Who is in a crowd, and what they do.

use std::collections::BTreeMap;
use std::ops::Range;

/// How a crowd is to be.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) users: usize,
    /// Users in a room; each user is in two.
    pub(crate) room_size: usize,
    /// How long who wanders stays on one server, in ms.
    pub(crate) stay_ms: Range<u64>,
    /// How long a user waits before the next message, in ms.
    pub(crate) write_ms: Range<u64>,
    /// How often a user acknowledges what was heard, in ms. Each time is told to all in the room.
    pub(crate) acknowledge_ms: u64,
    /// When those go who go for good, in ms.
    pub(crate) go_ms: Range<u64>,
    /// What the users are, in turn.
    pub(crate) roles: &'static [Role],
}

/// What a user does. All but the silent write, and acknowledge what they hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Moves from server to server, politely or not.
    Wanders,
    /// Stays where it is for as long as it can.
    Stays,
    /// Goes for good while the others go on.
    Goes,
    /// Goes for good when the others become calm.
    GoesLate,
    /// Hears and says nothing, not even that it has heard.
    Silent,
    /// The same, and wants no pushes of its first room.
    SilentAndMuted,
    /// As one who goes, and wants no pushes at all.
    GoesAndMuted,
    /// Has two devices that move on their own.
    TwoDevices,
}

/// People who move between servers; some go at the end.
pub(crate) const WANDERERS: &[Role] = &[
    Role::Wanders,
    Role::Wanders,
    Role::Wanders,
    Role::GoesLate,
    Role::Wanders,
    Role::Wanders,
    Role::Wanders,
    Role::Wanders,
    Role::Wanders,
    Role::Wanders,
];

/// People of all kinds.
pub(crate) const MIXED: &[Role] = &[
    Role::Wanders,
    Role::Stays,
    Role::TwoDevices,
    Role::Silent,
    Role::Wanders,
    Role::Goes,
    Role::Stays,
    Role::SilentAndMuted,
    Role::Wanders,
    Role::GoesLate,
    Role::TwoDevices,
    Role::GoesAndMuted,
];

impl Role {
    pub(super) fn is_silent(self) -> bool {
        matches!(self, Self::Silent | Self::SilentAndMuted)
    }

    /// Does not stay where it is for longer than it must.
    pub(super) fn moves(self) -> bool {
        !self.is_silent() && self != Self::Stays
    }

    pub(super) fn goes(self) -> bool {
        matches!(self, Self::Goes | Self::GoesAndMuted)
    }

    /// The names of the devices, where they have names.
    pub(super) fn devices(self) -> &'static [Option<&'static str>] {
        if self == Self::TwoDevices { &[Some("phone"), Some("laptop")] } else { &[None] }
    }
}

impl Plan {
    pub(super) fn role(&self, number: usize) -> Role {
        self.roles[number % self.roles.len()]
    }

    /// A room of neighbours, and one of users that are far apart.
    pub(super) fn rooms_of(&self, number: usize) -> [String; 2] {
        let rooms = self.users.div_ceil(self.room_size);
        [format!("near{}", number / self.room_size), format!("far{}", number % rooms)]
    }

    /// All rooms, with their members.
    pub(super) fn rooms(&self) -> BTreeMap<String, Vec<String>> {
        let mut members: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for number in 0..self.users {
            for room in self.rooms_of(number) {
                members.entry(room).or_default().push(user(number));
            }
        }
        members
    }
}

pub(super) fn user(number: usize) -> String {
    format!("u{number}")
}
