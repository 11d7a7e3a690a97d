//! A machine for filter programs, as small as the instructions they use.

use cowork_linux::filter::Instruction;

/// What the kernel shows a filter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) number: u32,
    pub(crate) arch: u32,
    pub(crate) args: [u64; 6],
}

/// Runs a program as the kernel would, and gives up where the kernel would refuse it.
pub(crate) fn run(program: &[Instruction], call: Call) -> u32 {
    let mut data = Vec::with_capacity(64);
    data.extend(call.number.to_le_bytes());
    data.extend(call.arch.to_le_bytes());
    data.extend(0x5555_0000_1234_u64.to_le_bytes());
    call.args
        .iter()
        .for_each(|arg| data.extend(arg.to_le_bytes()));
    let (mut at, mut a) = (0, 0_u32);
    loop {
        let Instruction { code, jt, jf, k } = program[at];
        at += 1;
        let holds = match code {
            0x06 => return k,
            0x20 => {
                assert!(k.is_multiple_of(4), "a load that is not aligned");
                let start = k as usize;
                a = u32::from_le_bytes(data[start..start + 4].try_into().unwrap());
                continue;
            }
            0x54 => {
                a &= k;
                continue;
            }
            0x05 => {
                at += k as usize;
                continue;
            }
            0x15 => a == k,
            0x25 => a > k,
            0x35 => a >= k,
            0x45 => a & k != 0,
            _ => panic!("instruction {code:#x} is not one the kernel can replay for its cache"),
        };
        at += usize::from(if holds { jt } else { jf });
    }
}
