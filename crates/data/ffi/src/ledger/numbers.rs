//! The kernel's system calls by number, and what becomes of each that is made by syscall(2).
//!
//! A line of functions is `NAME NUMBER => module::function(arguments);`: the hook of that name,
//! with the words of the call in their order (`hooks/direct.rs` has those whose arguments are not
//! quite libc's). A number that stands nowhere here is refused: ENOSYS, as by a kernel without it.
//!
//! Numbers are those of x86-64 (linux, arch/x86/entry/syscalls/syscall_64.tbl).

use super::{Action, Entry};

/// A system call.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    /// What syscall(2) is called with.
    pub number: i64,
    /// Its name and what becomes of it.
    pub entry: Entry,
}

/// Hands the table to the macro `$to`.
macro_rules! numbers {
    ($($to:tt)+) => { $($to)+! {
functions {
    read 0 => bytes::read(fd, into, len);
    write 1 => bytes::write(fd, from, len);
    open 2 => open::open(path, flags, mode);
    close 3 => close::close(fd);
    stat 4 => stat::stat(path, into);
    fstat 5 => stat::fstat(fd, into);
    lstat 6 => stat::lstat(path, into);
    poll 7 => wait::poll(fds, n, timeout);
    lseek 8 => bytes::lseek(fd, at, whence);
    mmap 9 => map::mmap(address, len, protection, flags, fd, at);
    mprotect 10 => map::mprotect(address, len, protection);
    munmap 11 => map::munmap(address, len);
    ioctl 16 => control::ioctl(fd, request, arg);
    pread64 17 => bytes::pread(fd, into, len, at);
    pwrite64 18 => bytes::pwrite(fd, from, len, at);
    readv 19 => vectors::readv(fd, pieces, n);
    writev 20 => vectors::writev(fd, pieces, n);
    access 21 => attributes::access(path, mode);
    select 23 => wait::select(n, read, write, except, timeout);
    mremap 25 => map::mremap(old, old_len, new_len, flags, new);
    madvise 28 => map::madvise(address, len, advice);
    dup 32 => duplicate::dup(fd);
    dup2 33 => duplicate::dup2(fd, onto);
    sendfile 40 => transfer::sendfile(to, from, at, len);
    clone 56 => direct::clone(flags, stack, parent, child, thread);
    fork 57 => processes::fork_without_handlers();
    vfork 58 => processes::vfork();
    fcntl 72 => control::fcntl(fd, command, arg);
    flock 73 => locks::flock(fd, operation);
    fsync 74 => sync::fsync(fd);
    fdatasync 75 => sync::fdatasync(fd);
    truncate 76 => size::truncate(path, len);
    ftruncate 77 => size::ftruncate(fd, len);
    chdir 80 => names::chdir(path);
    fchdir 81 => names::fchdir(fd);
    rename 82 => names::rename(from, to);
    rmdir 84 => names::rmdir(path);
    creat 85 => open::creat(path, mode);
    link 86 => names::link(from, to);
    unlink 87 => names::unlink(path);
    symlink 88 => names::symlink(target, path);
    readlink 89 => proc::readlink(path, into, len);
    chmod 90 => attributes::chmod(path, mode);
    fchmod 91 => attributes::fchmod(fd, mode);
    chown 92 => attributes::chown(path, owner, group);
    fchown 93 => attributes::fchown(fd, owner, group);
    sigaltstack 131 => signals::sigaltstack(new, before);
    statfs 137 => attributes::statfs_of(path, into);
    fstatfs 138 => attributes::fstatfs(fd, into);
    setrlimit 160 => limits::setrlimit(resource, limit);
    pivot_root 155 => names::pivot_root(new, old);
    chroot 161 => names::chroot(path);
    acct 163 => within::acct(path);
    swapon 167 => within::swapon(path, flags);
    readahead 187 => size::readahead(fd, at, len);
    setxattr 188 => attributes::setxattr(path, name, from, len, flags);
    fsetxattr 190 => attributes::fsetxattr(fd, name, from, len, flags);
    getxattr 191 => attributes::getxattr(path, name, into, len);
    fgetxattr 193 => attributes::fgetxattr(fd, name, into, len);
    listxattr 194 => attributes::listxattr(path, into, len);
    flistxattr 196 => attributes::flistxattr(fd, into, len);
    removexattr 197 => attributes::removexattr(path, name);
    fremovexattr 199 => attributes::fremovexattr(fd, name);
    fadvise64 221 => direct::fadvise64(fd, at, len, advice);
    epoll_ctl 233 => wait::epoll_ctl(epoll, operation, fd, event);
    utimes 235 => attributes::utimes(path, times);
    openat 257 => open::openat(at, path, flags, mode);
    fchownat 260 => attributes::fchownat(at, path, owner, group, flags);
    futimesat 261 => direct::futimesat(at, path, times);
    newfstatat 262 => stat::fstatat(at, path, into, flags);
    unlinkat 263 => names::unlinkat(at, path, flags);
    renameat 264 => names::renameat(from_at, from, to_at, to);
    linkat 265 => names::linkat(from_at, from, to_at, to, flags);
    symlinkat 266 => names::symlinkat(target, at, path);
    readlinkat 267 => proc::readlinkat(at, path, into, len);
    pselect6 270 => wait::pselect6(n, read, write, except, timeout, mask);
    ppoll 271 => wait::ppoll_counting(fds, n, timeout, mask, size);
    splice 275 => transfer::splice(from, from_at, to, to_at, len, flags);
    tee 276 => transfer::tee(from, to, len, flags);
    sync_file_range 277 => size::sync_file_range(fd, at, len, flags);
    vmsplice 278 => transfer::vmsplice(fd, pieces, n, flags);
    utimensat 280 => direct::utimensat(at, path, times, flags);
    unshare 272 => unshare::unshare(flags);
    fallocate 285 => size::fallocate(fd, mode, at, len);
    dup3 292 => duplicate::dup3(fd, onto, flags);
    preadv 295 => vectors::preadv(fd, pieces, n, at);
    pwritev 296 => vectors::pwritev(fd, pieces, n, at);
    fanotify_init 300 => within::fanotify_init(flags, event_flags);
    prlimit64 302 => limits::prlimit(of, resource, limit, before);
    io_setup 206 => direct::io_setup(count, context);
    io_destroy 207 => direct::io_destroy(context);
    io_getevents 208 => direct::io_getevents(context, least, most, into, timeout);
    io_submit 209 => direct::io_submit(context, count, list);
    io_cancel 210 => direct::io_cancel(context, request, event);
    open_by_handle_at 304 => open::open_by_handle_at(mount, handle, flags);
    syncfs 306 => sync::syncfs(fd);
    renameat2 316 => names::renameat2(from_at, from, to_at, to, flags);
    copy_file_range 326 => transfer::copy_file_range(from, from_at, to, to_at, len, flags);
    preadv2 327 => direct::preadv2(fd, pieces, n, at, high, flags);
    pwritev2 328 => direct::pwritev2(fd, pieces, n, at, high, flags);
    statx 332 => stat::statx(at, path, flags, mask, into);
    io_pgetevents 333 => direct::io_pgetevents(context, least, most, into, timeout, mask);
    clone3 435 => direct::clone3(arguments, len);
    close_range 436 => close::close_range(first, last, flags);
    faccessat2 439 => direct::faccessat2(at, path, mode, flags);
    fchmodat2 452 => direct::fchmodat2(at, path, mode, flags);
}
refusals {
    ENOSYS "Rings go round libc; refused from the start, so that programs fall back." {
        io_uring_setup 425; io_uring_enter 426; io_uring_register 427;
    }
    ENOSYS "Its way of resolving a path is not ours; programs fall back to openat." {
        openat2 437;
    }
    ENOSYS "Would take a descriptor from beneath another process of the server." {
        pidfd_getfd 438;
    }
    ENOSYS "Would say of any two sealed files that they are one: both visible descriptors are the \
        anchor's." {
        kcmp 312;
    }
    ENOSYS "Reaches the anchor by AT_EMPTY_PATH; programs fall back to the calls for descriptors." {
        setxattrat 463; getxattrat 464; listxattrat 465; removexattrat 466;
        file_getattr 468; file_setattr 469;
    }
}
straight {
    "Not about a file." {
        rt_sigaction 13; rt_sigprocmask 14; rt_sigreturn 15; sched_yield 24; pause 34;
        nanosleep 35; getitimer 36; alarm 37; setitimer 38; getpid 39; exit 60; wait4 61; kill 62;
        uname 63; umask 95; gettimeofday 96; getrlimit 97; getrusage 98; sysinfo 99; times 100;
        getuid 102; syslog 103; getgid 104; setuid 105; setgid 106; geteuid 107; getegid 108;
        setpgid 109; getppid 110; getpgrp 111; setsid 112; setreuid 113; setregid 114;
        getgroups 115; setgroups 116; setresuid 117; getresuid 118; setresgid 119; getresgid 120;
        getpgid 121; setfsuid 122; setfsgid 123; getsid 124; capget 125; capset 126;
        rt_sigpending 127; rt_sigtimedwait 128; rt_sigqueueinfo 129; rt_sigsuspend 130;
        personality 135; ustat 136; sysfs 139; getpriority 140; setpriority 141;
        sched_setparam 142; sched_getparam 143; sched_setscheduler 144; sched_getscheduler 145;
        sched_get_priority_max 146; sched_get_priority_min 147; sched_rr_get_interval 148;
        vhangup 153; prctl 157; arch_prctl 158; adjtimex 159; settimeofday 164; reboot 169;
        sethostname 170; setdomainname 171; iopl 172; ioperm 173; init_module 175;
        delete_module 176; gettid 186; tkill 200; time 201; futex 202;
        sched_setaffinity 203; sched_getaffinity 204; set_thread_area 205; get_thread_area 211;
        set_tid_address 218; restart_syscall 219; timer_create 222; timer_settime 223;
        timer_gettime 224; timer_getoverrun 225; timer_delete 226; clock_settime 227;
        clock_gettime 228; clock_getres 229; clock_nanosleep 230; exit_group 231; tgkill 234;
        kexec_load 246; waitid 247; add_key 248; request_key 249; keyctl 250; ioprio_set 251;
        ioprio_get 252; set_robust_list 273; get_robust_list 274; rt_tgsigqueueinfo 297;
        perf_event_open 298; clock_adjtime 305; getcpu 309; sched_setattr 314;
        sched_getattr 315; seccomp 317; getrandom 318; bpf 321;
        membarrier 324; rseq 334; uretprobe 335; uprobe 336; pidfd_send_signal 424;
        landlock_create_ruleset 444; landlock_add_rule 445; landlock_restrict_self 446;
        futex_waitv 449; futex_wake 454; futex_wait 455; futex_requeue 456;
        lsm_get_self_attr 459; lsm_set_self_attr 460; lsm_list_modules 461; modify_ldt 154;
    }
    "Works on memory; no map of a program shows a sealed file's pages." {
        brk 12; msync 26; mincore 27; mlock 149;
        munlock 150; mlockall 151; munlockall 152; remap_file_pages 216; mbind 237;
        set_mempolicy 238; get_mempolicy 239; migrate_pages 256; move_pages 279; mlock2 325;
        pkey_mprotect 329; pkey_alloc 330; pkey_free 331; process_madvise 440;
        process_mrelease 448; set_mempolicy_home_node 450; map_shadow_stack 453; mseal 462;
        userfaultfd 323;
    }
    "Memory of another process: not a file." {
        ptrace 101; process_vm_readv 310; process_vm_writev 311;
    }
    "Not a regular file: nothing to seal." {
        pipe 22; socket 41; accept 43; socketpair 53; eventfd 284; eventfd2 290; timerfd_create 283;
        timerfd_settime 286; timerfd_gettime 287; signalfd 282; signalfd4 289; epoll_create 213;
        epoll_create1 291; epoll_wait 232; epoll_pwait 281; epoll_pwait2 441; accept4 288;
        pipe2 293; inotify_init 253; inotify_add_watch 254; inotify_rm_watch 255;
        inotify_init1 294; fanotify_mark 301; memfd_create 319; memfd_secret 447; pidfd_open 434;
        mq_open 240; mq_unlink 241; mq_timedsend 242; mq_timedreceive 243; mq_notify 244;
        mq_getsetattr 245; shmget 29; shmat 30; shmctl 31; shmdt 67; semget 64; semop 65; semctl 66;
        semtimedop 220; msgget 68; msgsnd 69; msgrcv 70; msgctl 71;
    }
    "Only on sockets; a visible descriptor that is sent along is an anchor that the receiver \
        cannot use." {
        connect 42; sendto 44; recvfrom 45; sendmsg 46; recvmsg 47; shutdown 48; bind 49; listen 50;
        getsockname 51; getpeername 52; setsockopt 54; getsockopt 55; recvmmsg 299; sendmmsg 307;
    }
    "The new program gets no hidden descriptor; the visible ones are anchors that nobody can use. A \
        lock on a sealed file ends." {
        execve 59; execveat 322;
    }
    "Names of files and directories are not sealed." {
        getcwd 79; mkdir 83; mknod 133; mkdirat 258; mknodat 259; faccessat 269;
    }
    "Lists names, `.tidelock` among them; opening goes through open." {
        getdents 78; getdents64 217;
    }
    "Owner, mode, times and extended attributes of a name are those of the file." {
        lchown 94; utime 132; fchmodat 268; lsetxattr 189; lgetxattr 192; llistxattr 195;
        lremovexattr 198;
    }
    "About the file system." {
        sync 162; mount 165; umount2 166; swapoff 168; quotactl 179; quotactl_fd 443;
        open_tree 428; move_mount 429; fsopen 430; fsconfig 431; fsmount 432; fspick 433;
        mount_setattr 442; statmount 457; listmount 458; open_tree_attr 467; lookup_dcookie 212;
    }
    "Of a visible descriptor the kernel refuses it: EBADF." {
        cachestat 451; finit_module 313; kexec_file_load 320;
    }
    "Works on a handle of the visible descriptor, which leads to the anchor." {
        name_to_handle_at 303;
    }
    "Changes what paths mean for the whole process; a server that does so does it before it opens \
        its directory." {
        setns 308;
    }
    "A number that no kernel carries out." {
        uselib 134; _sysctl 156; create_module 174; get_kernel_syms 177; query_module 178;
        nfsservctl 180; getpmsg 181; putpmsg 182; afs_syscall 183; tuxcall 184; security 185;
        epoll_ctl_old 214; epoll_wait_old 215; vserver 236;
    }
}
    } };
}
pub(crate) use numbers;

macro_rules! list {
    (
        functions { $(
            $function:ident $fnumber:literal => $module:ident::$hook:ident ($($arg:ident),*) ;
        )+ }
        refusals { $( $errno:ident $why:literal { $($refused:ident $rnumber:literal ;)+ } )+ }
        straight { $( $reason:literal { $($straight:ident $snumber:literal ;)+ } )+ }
    ) => {
        /// Every number, in the order of the table.
        pub const NUMBERS: &[Number] = &[
            $(Number {
                number: $fnumber,
                entry: Entry {
                    name: stringify!($function),
                    action: Action::Hook,
                    note: "As the function of that name.",
                },
            },)+
            $($(Number {
                number: $rnumber,
                entry: Entry {
                    name: stringify!($refused),
                    action: Action::Refuse(stringify!($errno)),
                    note: $why,
                },
            },)+)+
            $($(Number {
                number: $snumber,
                entry: Entry { name: stringify!($straight), action: Action::Pass, note: $reason },
            },)+)+
        ];
    };
}

numbers!(list);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_and_name_stands_in_the_table_once() {
        for (index, one) in NUMBERS.iter().enumerate() {
            let mut others = NUMBERS.iter().skip(index + 1);
            let again = others.find(|n| n.number == one.number || n.entry.name == one.entry.name);
            assert!(again.is_none(), "{one:?} and {again:?}");
        }
    }
}
