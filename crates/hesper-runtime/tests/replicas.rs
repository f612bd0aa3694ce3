//! Replicas of buffers on other devices: copied once, kept, never stale.

use hesper_runtime::Runtime;
use hesper_runtime::sim::Sim;

/// Pairs of runtimes with and without unified memory.
fn pairs() -> Vec<(Runtime, Runtime)> {
    let runtime = |seed, unified| Runtime::new(Sim::builder(seed).unified_memory(unified).build());
    [(true, true), (true, false), (false, true), (false, false)]
        .into_iter()
        .map(|(here, there)| (runtime(1, here), runtime(2, there)))
        .collect()
}

#[test]
fn a_buffer_on_its_own_runtime_is_itself() {
    for (here, _) in pairs() {
        let buffer = here.upload(&[1u8, 2, 3]).unwrap();
        assert!(buffer.on(&here).unwrap().same(&buffer));
        assert_eq!(here.counters().replicas, 0);
    }
}

#[test]
fn a_replica_is_copied_once_and_dropped_with_the_buffer() {
    for (here, there) in pairs() {
        let buffer = here.upload(&[1u8, 2, 3]).unwrap();
        let replica = buffer.on(&there).unwrap();
        assert!(replica.belongs_to(&there) && !replica.belongs_to(&here));
        assert_eq!(replica.read().unwrap().bytes(), [1, 2, 3]);
        assert!(buffer.on(&there).unwrap().same(&replica));
        assert_eq!(there.counters().replicas, 1);
        assert!(!replica.is_unique());
        drop(buffer);
        assert_eq!(there.counters().replicas, 0);
        assert!(replica.is_unique());
        assert_eq!(replica.read().unwrap().bytes(), [1, 2, 3]);
    }
}

#[test]
fn a_copy_waits_for_pending_writers() {
    for (here, there) in pairs() {
        let stream = here.stream().unwrap();
        let (source, buffer) = (here.upload(&[7u8; 4]).unwrap(), stream.alloc(4).unwrap());
        stream.encode("fill").read(&source).write(&buffer).copy().unwrap();
        assert_eq!(buffer.on(&there).unwrap().read().unwrap().bytes(), [7; 4]);
    }
}

#[test]
fn a_write_drops_the_replica() {
    for (here, there) in pairs() {
        let stream = here.stream().unwrap();
        let buffer = here.upload(&[1u8; 4]).unwrap();
        let old = buffer.on(&there).unwrap();
        let source = here.upload(&[2u8; 4]).unwrap();
        stream.encode("overwrite").read(&source).write(&buffer).copy().unwrap();
        assert_eq!(there.counters().replicas, 0);
        assert_eq!(buffer.on(&there).unwrap().read().unwrap().bytes(), [2; 4]);
        assert_eq!(old.read().unwrap().bytes(), [1; 4]);
        let mut guard = buffer.write().unwrap();
        guard.bytes_mut().fill(9);
        guard.finish().unwrap();
        assert_eq!(buffer.on(&there).unwrap().read().unwrap().bytes(), [9; 4]);
    }
}

#[test]
fn a_copy_of_a_poisoned_buffer_returns_its_fault() {
    for (here, there) in pairs() {
        let stream = here.stream().unwrap();
        let buffer = stream.alloc(4).unwrap();
        stream.encode("fail").write(&buffer).run(|_| Err("it broke".into())).unwrap();
        let error = buffer.on(&there).unwrap_err();
        assert!(error.to_string().contains("it broke"), "{error}");
        assert_eq!(there.counters().replicas, 0);
    }
}

#[test]
fn threads_that_want_one_replica_share_it() {
    for (here, there) in pairs() {
        let buffer = here.upload(&vec![3u8; 1 << 16]).unwrap();
        let replicas: Vec<_> = std::thread::scope(|scope| {
            let asked: Vec<_> = (0..8).map(|_| scope.spawn(|| buffer.on(&there).unwrap())).collect();
            asked.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(replicas.iter().all(|replica| replica.same(&replicas[0])));
    }
}

#[test]
fn a_range_of_a_buffer_can_be_read() {
    for (here, _) in pairs() {
        let buffer = here.upload(&[1u8, 2, 3, 4, 5]).unwrap();
        assert_eq!(buffer.read_range(1..3).unwrap().bytes(), [2, 3]);
        assert_eq!(buffer.read_range(5..).unwrap().bytes(), [0u8; 0]);
        assert!(buffer.read_range(3..9).is_err());
        buffer.wait().unwrap();
    }
}
