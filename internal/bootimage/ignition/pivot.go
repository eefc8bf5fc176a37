package ignition

import (
	_ "embed"
	"strings"

	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/model"
)

// PivotUnit boots a new machine into its pool's OS image before it joins.
const PivotUnit = "refit-os-image.service"

// Files of the unit on the machine: the image it is to boot, and what does it.
const (
	pivotImage  = "/etc/refit/first-image"
	pivotScript = "/etc/refit/first-image.sh"
)

//go:embed pivot.sh
var pivotProgram string

// kubeUnits are units that make a machine a node; they come after the image. One that a
// machine does not have is not missed.
var kubeUnits = []string{distribution.KubeletUnit, "kubeadm.service"}

func pivotFiles(o *model.ConfigOS) []model.ConfigFile {
	return []model.ConfigFile{{Path: pivotImage, Mode: 0o644, Data: []byte(o.Image + "\n")}, {Path: pivotScript, Mode: 0o755, Data: []byte(pivotProgram)}}
}

// pivotUnit: the script takes the file away when the image is booted, and later boots
// are not asked. If it fails, what joins does not start, and the console says why.
func pivotUnit() string {
	all := strings.Join(kubeUnits, " ")
	return `[Unit]
Description=refit: boot the OS image of this machine's pool before it joins
Documentation=https://github.com/refit-dev/refit
ConditionPathExists=` + pivotImage + `
Wants=network-online.target
After=local-fs.target network-online.target
Before=` + all + `

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh ` + pivotScript + `
StandardOutput=journal+console
StandardError=journal+console
TimeoutStartSec=1800

[Install]
RequiredBy=` + all + `
`
}
