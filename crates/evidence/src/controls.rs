//! Which requirements of well-known standards the facts of a report speak to, and what they leave
//! open. In our words; the standards' own text decides.

use serde::Serialize;

/// One requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Control {
    /// The standard.
    pub standard: &'static str,
    /// Its number there.
    pub number: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// Which part of the report speaks to it.
    pub evidence: &'static str,
    /// What the report does not prove.
    pub open: &'static str,
}

/// All of them.
#[must_use]
pub const fn controls() -> &'static [Control] {
    &CONTROLS
}

const CONTROLS: [Control; 8] = [
    Control {
        standard: "PCI DSS 4.0.1",
        number: "3.5.1",
        about: "Stored account numbers are unreadable wherever they are stored",
        evidence: "Coverage: each kind of file, its bytes, and what the search for plaintext saw",
        open: "Data outside this directory: dumps, archives, exports, other hosts, logs of \
               applications",
    },
    Control {
        standard: "PCI DSS 4.0.1",
        number: "3.5.1.2",
        about: "Disk-level or partition-level encryption alone is not enough on media that cannot \
                be removed",
        evidence: "Cipher: files are sealed by the database's processes, above the file system; \
                   root reads sealed bytes. Plain files: each by name and reason",
        open: "Whoever may log in to the database reads plain rows, as does a superuser of it or \
               root on the running machine. Whether an assessor counts file-level encryption as \
               more than disk-level is the assessor's decision: column-level protection is \
               stronger",
    },
    Control {
        standard: "PCI DSS 4.0.1",
        number: "3.6.1",
        about: "Keys that protect stored account data are themselves protected",
        evidence: "Slots: data keys exist on this disk only inside the keyring, which each slot's \
                   principal key wraps",
        open: "Who holds the principal keys, and how the key services guard them",
    },
    Control {
        standard: "PCI DSS 4.0.1",
        number: "3.7.4",
        about: "Keys are changed at the end of their cryptoperiod",
        evidence: "Data keys: the age of each against the configured period, and what is still \
                   sealed under keys that were replaced",
        open: "That the period itself is adequate; the age of principal keys in other services",
    },
    Control {
        standard: "PCI DSS 4.0.1",
        number: "10.2 and 10.3",
        about: "Access is logged, and logs are protected from change",
        evidence: "Audit log: number of lines, whether its chain of MACs is whole",
        open: "A log that was cut at its end since no exported head was compared here; what \
               happened inside the database",
    },
    Control {
        standard: "ISO/IEC 27001:2022",
        number: "A.8.24",
        about: "Use of cryptography, with key management",
        evidence: "Cipher, data keys, slots, last rotation",
        open: "The organisation's rules for it",
    },
    Control {
        standard: "NIST SP 800-53 rev. 5",
        number: "SC-28(1), SC-12",
        about: "Protection of information at rest; establishment and management of keys",
        evidence: "Coverage; data keys; slots",
        open: "Integrity: the cipher (XTS) does not show that sealed data was changed",
    },
    Control {
        standard: "GDPR",
        number: "Article 32(1)(a)",
        about: "Encryption of personal data as one appropriate measure",
        evidence: "Coverage; plain files by name and reason",
        open: "Whether it is appropriate to the risk; the other measures of the article",
    },
];
