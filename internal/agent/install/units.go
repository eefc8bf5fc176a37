package install

// unitFile is one file that systemd reads.
type unitFile struct{ path, text string }

// units in the order in which they are written: who asks comes after who answers.
func (p Places) units() []unitFile {
	return []unitFile{
		{p.check(), checkText(p.Binary())},
		{p.unit(), unitText(p.Binary())},
		{p.asks(), asksText(p.Binary())},
	}
}

// unitText orders the agent before the kubelet without tying them: an agent
// that fails must never keep a node from coming up.
func unitText(binary string) string {
	return `[Unit]
Description=refit node agent
Documentation=https://github.com/refit-dev/refit
Wants=network-online.target
After=network-online.target local-fs.target containerd.service crio.service
Before=kubelet.service
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart=` + binary + ` run
Restart=always
RestartSec=2
KillMode=process
TimeoutStartSec=60
TimeoutStopSec=20
` + lines(agentHardening()) + `
[Install]
WantedBy=multi-user.target
`
}

// checkText is the check of the images at the start of the machine. It is after
// the container runtime, which starts by itself, and requires nothing: a runtime
// that is restarted later stops neither it nor the kubelet. It is not required by
// the kubelet either: systemd would give up a kubelet whose requirement failed and
// never try it again. What keeps the kubelet from starting is in its own unit.
func checkText(binary string) string {
	return `[Unit]
Description=refit check of this node's images before the kubelet starts
Documentation=https://github.com/refit-dev/refit
After=local-fs.target containerd.service crio.service
Before=kubelet.service
StartLimitIntervalSec=0

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=` + binary + ` preflight
ExecStop=` + binary + ` preflight --stopping
Restart=on-failure
RestartSec=5
TimeoutStartSec=infinity
TimeoutStopSec=30
` + lines(checkHardening()) + `
[Install]
WantedBy=multi-user.target
`
}

// asksText has the kubelet's unit make the same check before every start. It is
// over at once if this boot was looked at; if not, because the check was killed or
// has failed, the kubelet does not start, and its own Restart is the retry. Without
// the program nothing is asked.
func asksText(binary string) string {
	return `# Written by refit: no kubelet starts on images that a power cut has torn.
[Unit]
After=` + Preflight + `
StartLimitIntervalSec=0

[Service]
ExecStartPre=/bin/sh -c 'test ! -x ` + binary + ` || exec ` + binary + ` preflight > /dev/null'
Restart=always
RestartSec=10
TimeoutStartSec=infinity
`
}
