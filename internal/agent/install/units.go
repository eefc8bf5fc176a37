package install

import "strings"

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
ExecStart=` + ask(binary) + `
ExecStop=-` + binary + ` preflight --stopping
Restart=on-failure
RestartSec=5
TimeoutStartSec=` + checkTime + `
TimeoutStopSec=30
` + lines(checkHardening()) + `
[Install]
WantedBy=multi-user.target
`
}

// checkTime is longer than any check: the check itself ends after 30 minutes, and a
// process that stands still is given up after one.
const checkTime = "2700"

// ask is a command that ends when the kubelet may start, whatever the check does: it may
// be missing, fail, crash again and again, or hang on a disk so that nothing can kill it.
// What counts is the stamp in /run, with this boot's ID, not the end of the process. A
// check that makes its file in /run no newer for a minute is given up, one that crashes is
// started three times. It always ends with success.
func ask(binary string) string {
	script := strings.Join([]string{
		`boot=$(cat /proc/sys/kernel/random/boot_id)`,
		`run=/run/refit`,
		`free() { grep -qsF "$boot" $run/preflight.json $run/preflight.released; }`,
		`free && exit 0`,
		`test -x ` + binary + ` || exit 0`,
		`for try in 1 2 3; do ` + binary + ` preflight >/dev/null & pid=$!; still=0; last=`,
		`while kill -0 $pid 2>/dev/null && [ $still -lt 60 ]; do sleep 1; free && exit 0; now=$(cat $run/preflight.alive 2>/dev/null); still=$((still+1)); [ "$now" = "$last" ] || still=0; last=$now; done`,
		`kill -9 $pid 2>/dev/null && why="stood still for a minute" && break`,
		`wait $pid && exit 0; why="failed three times with exit code $?"`,
		`free && exit 0; sleep 2; done`,
		`mkdir -p $run; echo "$boot the check of the images $why" >$run/preflight.released`,
		`echo "refit: THE KUBELET STARTS WITHOUT A CHECK OF ITS IMAGES: the check $why" >&2`,
	}, "; ")
	// systemd reads $ and % before the shell does.
	return `/bin/sh -c '` + strings.NewReplacer("$", "$$", "%", "%%").Replace(script) + `; exit 0'`
}

// asksText has the kubelet's unit make the same check before every start. It is over at
// once if this boot was checked. Without the program, or if it is of no use, the kubelet
// starts all the same: refit must never be the reason that a node stays down.
func asksText(binary string) string {
	return `# Written by refit: no kubelet starts on images that a power cut has torn.
[Unit]
After=` + Preflight + `
StartLimitIntervalSec=0

[Service]
ExecStartPre=-` + ask(binary) + `
Restart=always
RestartSec=10
TimeoutStartSec=` + checkTime + `
`
}
