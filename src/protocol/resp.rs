//! Commands in the wire format: arrays of strings, each after its length.

/// Appends the start of a command with this number of words.
pub(crate) fn begin(packet: &mut Vec<u8>, words: usize) {
    head(packet, b'*', words);
}

pub(crate) fn word(packet: &mut Vec<u8>, word: &[u8]) {
    head(packet, b'$', word.len());
    packet.extend_from_slice(word);
    packet.extend_from_slice(b"\r\n");
}

/// Appends a number as a word of decimal digits.
pub(crate) fn number(packet: &mut Vec<u8>, number: u64) {
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

/// The commands of a packet, for a client that sends them itself.
#[cfg(feature = "tokio")]
pub(crate) fn commands(mut packet: &[u8]) -> impl Iterator<Item = redis::Cmd> {
    std::iter::from_fn(move || {
        let words = count(&mut packet, b'*')?;
        let mut command = redis::Cmd::with_capacity(words, packet.len());
        for _ in 0..words {
            let Some((word, rest)) = count(&mut packet, b'$').and_then(|length| packet.split_at_checked(length)) else {
                break;
            };
            command.arg(word);
            packet = rest.get(b"\r\n".len()..).unwrap_or_default();
        }
        Some(command)
    })
}

/// Reads a count after this sign.
#[cfg(feature = "tokio")]
fn count(packet: &mut &[u8], sign: u8) -> Option<usize> {
    let [first, rest @ ..] = *packet else { return None };
    if *first != sign {
        return None;
    }
    let (mut rest, mut count) = (rest, 0);
    while let [digit @ b'0'..=b'9', after @ ..] = rest {
        count = count * 10 + usize::from(digit - b'0');
        rest = after;
    }
    *packet = rest.get(b"\r\n".len()..)?;
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        #[cfg(feature = "tokio")]
        fn a_packet_consists_of_the_commands_that_were_written(
            commands in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..9), 1..5),
        ) {
            let mut packet = Vec::new();
            for words in &commands {
                begin(&mut packet, words.len());
                words.iter().for_each(|each| word(&mut packet, each));
            }
            let read: Vec<redis::Cmd> = super::commands(&packet).collect();
            prop_assert_eq!(read.len(), commands.len());
            let read: Vec<u8> = read.iter().flat_map(redis::Cmd::get_packed_command).collect();
            prop_assert_eq!(read, packet);
        }

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
