//! Commands in the wire format: arrays of strings, each after its length.

/// Appends the start of a command with this number of words.
pub fn begin(packet: &mut Vec<u8>, words: usize) {
    head(packet, b'*', words);
}

pub fn word(packet: &mut Vec<u8>, word: &[u8]) {
    head(packet, b'$', word.len());
    packet.extend_from_slice(word);
    packet.extend_from_slice(b"\r\n");
}

/// A command of these words.
pub fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut packet = Vec::new();
    begin(&mut packet, words.len());
    words.iter().for_each(|each| word(&mut packet, each));
    packet
}

/// Appends a number as a word of decimal digits.
pub fn number(packet: &mut Vec<u8>, number: u64) {
    let length = number.checked_ilog10().unwrap_or_default() + 1;
    head(packet, b'$', length as usize);
    digits(packet, number);
    packet.extend_from_slice(b"\r\n");
}

fn head(packet: &mut Vec<u8>, sign: u8, count: usize) {
    packet.push(sign);
    digits(packet, count as u64);
    packet.extend_from_slice(b"\r\n");
}

/// Appends decimal digits, two per recursion.
fn digits(packet: &mut Vec<u8>, number: u64) {
    if number > 99 {
        digits(packet, number / 100);
    }
    if number > 9 {
        packet.push(b'0' + (number / 10 % 10) as u8);
    }
    packet.push(b'0' + (number % 10) as u8);
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
