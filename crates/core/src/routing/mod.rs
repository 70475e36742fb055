//! Which server gets a call, and what follows if it does not answer. Nothing here sends anything.

pub mod route;
pub mod sentinel;
pub mod slots;

use std::collections::BTreeMap;

/// The number of a server: 0 if there is only one, otherwise one number for each node of a cluster.
pub type NodeId = usize;

/// Host and port.
pub type HostPort = (String, u16);

/// The calls for each node, by their indexes. `nodes`: the node of each call.
pub fn by_node(nodes: impl IntoIterator<Item = NodeId>) -> BTreeMap<NodeId, Vec<usize>> {
    let mut groups: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
    for (index, node) in nodes.into_iter().enumerate() {
        groups.entry(node).or_default().push(index);
    }
    groups
}

/// The outcomes in the order of their calls. Each comes with the index of its call.
pub fn in_order<T>(outcomes: impl IntoIterator<Item = (usize, T)>) -> Vec<T> {
    let outcomes: BTreeMap<usize, T> = outcomes.into_iter().collect();
    outcomes.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_of_a_batch_gets_its_own_outcome() {
        let groups = by_node([2, 0, 2, 1, 0]);
        assert_eq!(groups, BTreeMap::from([(0, vec![1, 4]), (1, vec![3]), (2, vec![0, 2])]));
        let outcomes =
            groups.into_iter().flat_map(|(node, calls)| calls.into_iter().map(move |call| (call, node)));
        assert_eq!(in_order(outcomes), [2, 0, 2, 1, 0]);
    }
}
