//! The slot of a key.

/// The number of slots of a cluster.
const SLOTS: u16 = 16_384;

/// The slot of a key in a cluster. Keys with the same hash tag, the text between the first `{` and the next `}`, have
/// the same slot.
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS
}

fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let begin = key.iter().position(|byte| *byte == b'{')? + 1;
    let rest = key.get(begin..)?;
    let end = rest.iter().position(|byte| *byte == b'}')?;
    rest.get(..end).filter(|tag| !tag.is_empty())
}

/// CRC16-CCITT in the variant XMODEM, which the specification of the cluster prescribes.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => crc << 1 ^ 0x1021,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_and_the_slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        for (key, slot) in [("", 0), ("foo", 12_182), ("somekey", 11_058), ("foo{hash_tag}", 2_515)] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn only_the_first_hash_tag_with_text_decides() {
        let same = [("{user1000}.following", "user1000"), ("foo{bar}{zap}", "bar"), ("foo{{bar}}zap", "{bar")];
        for (key, tag) in same {
            assert_eq!(slot_of(key.as_bytes()), slot_of(tag.as_bytes()), "{key}");
        }
        for whole in ["foo{}{bar}", "foo{bar", "foo}bar{"] {
            assert_eq!(slot_of(whole.as_bytes()), crc16(whole.as_bytes()) % SLOTS, "{whole}");
        }
    }
}
