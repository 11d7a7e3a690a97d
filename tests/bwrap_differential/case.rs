//! One argument list, the world it is given in, and the caller who gives it.

/// What a case puts into its world besides what every world has.
#[derive(Debug, Clone)]
pub(crate) enum Put {
    File(String, Vec<u8>),
    Directory(String),
    Link(String, String),
    Mode(String, u32),
}

/// What a bubblewrap of our version has to show, where the other one is too old to compare with.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    pub(crate) section: &'static str,
    pub(crate) lines: Vec<String>,
    /// Whether the section has nothing else.
    pub(crate) exactly: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) options: Vec<String>,
    pub(crate) command: Vec<String>,
    /// How the caller prepares itself: words of the starter.
    pub(crate) arranged: Vec<String>,
    pub(crate) put: Vec<Put>,
    pub(crate) environment: Vec<(String, String)>,
    /// bwrap's own argv[0].
    pub(crate) called: String,
    pub(crate) expected: Vec<Expected>,
}

/// The environment of every caller.
const ENVIRONMENT: [(&str, &str); 4] = [
    ("LANG", "C"),
    ("HOME", "{W}/home"),
    ("PATH", "/nowhere:/usr/bin:/bin"),
    ("KEPT", "as it was"),
];

/// Options as on a command line, with `{W}` for the world; the command is the probe, which looks
/// at everything.
pub(crate) fn case(options: &str) -> Case {
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    Case {
        options: words(options),
        command: Vec::new(),
        arranged: Vec::new(),
        put: Vec::new(),
        environment: ENVIRONMENT.map(owned).to_vec(),
        called: "bwrap".to_owned(),
        expected: Vec::new(),
    }
    .then("")
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

impl Case {
    /// The probe first does this, then looks at everything.
    pub(crate) fn then(self, verbs: &str) -> Self {
        self.command(&format!(
            "--ro-bind {{W}}/tools /tools /tools/probe {verbs} list / show"
        ))
    }

    /// Where the root of the sandbox is the host's, and too large to look at as a whole.
    pub(crate) fn on_host(self, verbs: &str) -> Self {
        self.command(&format!("{{W}}/tools/probe {verbs} show"))
    }

    /// The probe does only this.
    pub(crate) fn only(self, verbs: &str) -> Self {
        self.command(&format!(
            "--ro-bind {{W}}/tools /tools /tools/probe {verbs}"
        ))
    }

    /// What follows the options, as it stands here.
    pub(crate) fn command(mut self, text: &str) -> Self {
        self.command = words(text);
        self
    }

    /// One more option or value, which may be empty or have spaces.
    pub(crate) fn word(mut self, word: &str) -> Self {
        self.options.push(word.to_owned());
        self
    }

    pub(crate) fn more(mut self, options: &str) -> Self {
        self.options.extend(words(options));
        self
    }

    pub(crate) fn with(mut self, arrangement: &str) -> Self {
        self.arranged.extend(words(arrangement));
        self
    }

    pub(crate) fn called(mut self, name: &str) -> Self {
        self.called = name.to_owned();
        self
    }

    pub(crate) fn environment(mut self, list: &[(&str, &str)]) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        self.environment = list.iter().map(owned).collect();
        self
    }

    pub(crate) fn file(self, name: &str, content: &str) -> Self {
        self.bytes(name, content.as_bytes())
    }

    pub(crate) fn bytes(mut self, name: &str, content: &[u8]) -> Self {
        self.put.push(Put::File(name.to_owned(), content.to_vec()));
        self
    }

    pub(crate) fn directory(mut self, name: &str) -> Self {
        self.put.push(Put::Directory(name.to_owned()));
        self
    }

    pub(crate) fn link(mut self, target: &str, name: &str) -> Self {
        let link = Put::Link(target.to_owned(), name.to_owned());
        self.put.push(link);
        self
    }

    pub(crate) fn mode(mut self, name: &str, mode: u32) -> Self {
        self.put.push(Put::Mode(name.to_owned(), mode));
        self
    }

    /// These arguments come to bwrap by a descriptor, each ended by a NUL, the last one perhaps not.
    pub(crate) fn arguments_by(self, fd: u32, arguments: &str, last_ended: bool) -> Self {
        let mut content = arguments.split(' ').collect::<Vec<_>>().join("\0");
        if last_ended {
            content.push('\0');
        }
        let name = format!("arguments-{fd}");
        self.file(&name, &content)
            .with(&format!("read {fd} {{W}}/{name}"))
    }

    /// A bubblewrap of our version shows at least these lines.
    pub(crate) fn expects(self, section: &'static str, lines: &[&str]) -> Self {
        self.expected_lines(section, lines, false)
    }

    pub(crate) fn expects_exactly(self, section: &'static str, lines: &[&str]) -> Self {
        self.expected_lines(section, lines, true)
    }

    fn expected_lines(mut self, section: &'static str, lines: &[&str], exactly: bool) -> Self {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        self.expected.push(Expected {
            section,
            lines,
            exactly,
        });
        self
    }
}

/// A test for each case, so that a failure names it, and the list of their names.
macro_rules! cases {
    ($($name:ident => $case:expr;)*) => {
        pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() {
                crate::compare::check(stringify!($name), &$case);
            }
        )*
    };
}
pub(crate) use cases;
