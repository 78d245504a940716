//! Who asks, as a number that is cheap to copy and compare.

/// A tenant, by the number that the gate has given its name. Smaller is not earlier or better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u32);
