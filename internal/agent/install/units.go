package install

import (
	"strings"

	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/distribution"
)

// unitFile is one file that systemd reads.
type unitFile struct{ path, text string }

// units in the order in which they are written: the kubelet's drop-in after the units it needs.
func (p Places) units() []unitFile { return p.unitsOf(p.Binary()) }

// unitsOf are the units that start a program.
func (p Places) unitsOf(binary string) []unitFile {
	return []unitFile{
		{p.importUnit(), importText(binary)},
		{p.preflightUnit(), preflightText(binary)},
		{p.at("/etc/systemd/system/" + BootCheck), BootCheckText(binary)},
		{p.agentUnit(), agentText(binary)},
		{p.kubeletDropin(), kubeletDropinText(binary)},
	}
}

// agentText orders the agent before the kubelet without a dependency: an agent that fails
// must never keep a node from coming up.
func agentText(binary string) string {
	return `[Unit]
Description=refit node agent
Documentation=https://github.com/refit-dev/refit
Wants=network-online.target ` + BootCheck + `
After=network-online.target local-fs.target containerd.service crio.service
Before=` + distribution.KubeletUnit + `
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart=` + binary + ` run
Restart=always
RestartSec=2
KillMode=process
TimeoutStartSec=60
TimeoutStopSec=20
` + settingLines(agentHardening()) + `
[Install]
WantedBy=multi-user.target
`
}

// preflightText is the check of the images at the start of the machine. It starts after the
// container runtime, and requires nothing: a later restart of the runtime stops neither the
// check nor the kubelet. The kubelet does not require it either: systemd would give up a
// kubelet whose requirement failed and never try it again. The kubelet's own unit keeps the
// kubelet from starting.
func preflightText(binary string) string {
	return `[Unit]
Description=refit check of this node's images before the kubelet starts
Documentation=https://github.com/refit-dev/refit
After=local-fs.target containerd.service crio.service ` + Import + `
Before=` + distribution.KubeletUnit + `
StartLimitIntervalSec=0

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=` + preflightCommand(binary) + `
ExecStop=-` + binary + ` preflight --stopping
Restart=on-failure
RestartSec=5
TimeoutStartSec=` + preflightTimeout + `
TimeoutStopSec=30
` + settingLines(checkHardening()) + `
[Install]
WantedBy=multi-user.target
`
}

// importText is the unit that restores images before a distribution starts the container runtime and
// the kubelet in one. It ends at once where the runtime has its store, and on all other nodes. No unit
// requires it, so that nothing it meets keeps a node down: systemd ends it after its time.
func importText(binary string) string {
	return `[Unit]
Description=refit restore of images that a distribution imports
Documentation=https://github.com/refit-dev/refit
After=local-fs.target
Before=` + strings.Join(supervisors(), " ") + `

[Service]
Type=oneshot
ExecStart=` + binary + ` preflight --before-unit
TimeoutStartSec=900
` + settingLines(checkHardening()) + `
[Install]
WantedBy=multi-user.target
`
}

// supervisors are the units that start both container runtime and kubelet.
func supervisors() (units []string) {
	for _, r := range distribution.Rows() {
		if r.Supervised {
			units = append(append(units, r.Servers...), r.Agents...)
		}
	}
	return units
}

// BootCheckText is the unit that checks a boot into a new OS image, and only such a boot: the agent
// must run. It is in /etc, so that an image without the agent is found too. Then the machine
// restarts, and GRUB counts. The agent's unit wants it, so it needs no link of its own.
func BootCheckText(binary string) string {
	return `[Unit]
Description=refit check of a new OS image
Documentation=https://github.com/refit-dev/refit
ConditionPathExists=` + osdriver.BootAttempt + `
Before=boot-complete.target
FailureAction=reboot

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=` + bootCheckCommand(binary) + `
TimeoutStartSec=600
NoNewPrivileges=yes
`
}

// bootCheckCommand fails if the agent does not run for six seconds without a break within five
// minutes. It checks at most four boots of an attempt, so that it never restarts a machine for
// ever, also where nothing counts.
func bootCheckCommand(binary string) string {
	script := strings.Join([]string{
		`file=` + osdriver.BootAttempt,
		`n=$(grep -c "^boot " $file)`,
		`[ "$n" -lt 4 ] || exit 0`,
		`echo "boot $(cat /proc/sys/kernel/random/boot_id)" >>$file; sync`,
		`run=0; try=0; why=`,
		`while [ $try -lt 150 ]; do try=$((try+1)); test -x ` + binary + ` || { why="the image has no ` + binary + `"; break; }`,
		`if systemctl -q is-active ` + Unit + `; then run=$((run+1)); [ $run -lt 4 ] || exit 0; else run=0; fi`,
		`sleep 2; done`,
		`[ -n "$why" ] || why="` + Unit + ` does not run: $(echo $(systemctl show -p ActiveState -p Result ` + Unit + `))"`,
		`echo "failed $why" | tee -a $file; sync; exit 1`,
	}, "; ")
	return `/bin/sh -c '` + strings.NewReplacer("$", "$$", "%", "%%").Replace(script) + `'`
}

// greenbootChecks is where greenboot has the checks that every boot must pass.
const greenbootChecks = "/etc/greenboot/check/required.d"

func (p Places) greenbootCheck() string { return p.at(greenbootChecks + "/50-refit.sh") }

// greenbootCheckText asks what the boot check found, and waits for it: the check itself runs once a
// boot. In boots that are not tried the unit has nothing to do, and the check passes.
const greenbootCheckText = `#!/bin/sh
# Written by refit: a boot into a new OS image is good when the agent runs.
test -e ` + osdriver.BootAttempt + ` || exit 0
systemctl start ` + BootCheck + ` && exit 0
echo "refit: $(tail -n 1 ` + osdriver.BootAttempt + `)"
exit 1
`

// preflightTimeout is longer than any check: the check itself ends after 30 minutes, and a
// process without progress is given up after one.
const preflightTimeout = "2700"

// preflightCommand is a command that ends when the kubelet may start. It must end for every
// failure of the check: a missing program, an error, repeated crashes, or a hung disk so
// that no signal can kill it. It waits for the stamp in /run with this boot's ID, not for
// the end of the process. It gives up a check whose file in /run has not changed for a
// minute, and starts one that crashes three times. It always exits with success.
func preflightCommand(binary string) string {
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
	// systemd expands $ and % before the shell does.
	return `/bin/sh -c '` + strings.NewReplacer("$", "$$", "%", "%%").Replace(script) + `; exit 0'`
}

// kubeletDropinText makes the kubelet's unit run the same check before every start. It is
// over at once if this boot was checked. If the program is missing or fails, the kubelet
// starts all the same: refit must never keep a node down.
func kubeletDropinText(binary string) string {
	return `# Written by refit: no kubelet starts on images that a power cut has torn.
[Unit]
After=` + Preflight + `
StartLimitIntervalSec=0

[Service]
ExecStartPre=-` + preflightCommand(binary) + `
Restart=always
RestartSec=10
TimeoutStartSec=` + preflightTimeout + `
`
}
