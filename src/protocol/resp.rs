//! Commands as they go over the wire: arrays of strings, each with its length in front.

/// Appends the beginning of a command, which so many words follow.
pub(crate) fn begin(packet: &mut Vec<u8>, words: usize) {
    head(packet, b'*', words);
}

pub(crate) fn word(packet: &mut Vec<u8>, word: &[u8]) {
    head(packet, b'$', word.len());
    packet.extend_from_slice(word);
    packet.extend_from_slice(b"\r\n");
}

/// A word of decimal digits.
pub(crate) fn number(packet: &mut Vec<u8>, number: u64) {
    word(packet, digits(number, &mut [0; 20]));
}

fn head(packet: &mut Vec<u8>, sign: u8, count: usize) {
    packet.push(sign);
    packet.extend_from_slice(digits(count as u64, &mut [0; 20]));
    packet.extend_from_slice(b"\r\n");
}

fn digits(mut number: u64, room: &mut [u8; 20]) -> &[u8] {
    let mut first = room.len();
    for digit in room.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        first -= 1;
        if number == 0 {
            break;
        }
    }
    room.get(first..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_command_is_written_as_redis_writes_it(
            words in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..1_200), 1..12),
            last in any::<u64>(),
        ) {
            let mut packet = b"before".to_vec();
            begin(&mut packet, words.len() + 1);
            words.iter().for_each(|each| word(&mut packet, each));
            number(&mut packet, last);
            let mut command = redis::Cmd::new();
            command.arg(&words).arg(last);
            let expected = [b"before".to_vec(), command.get_packed_command()].concat();
            prop_assert_eq!(packet, expected);
        }
    }
}
