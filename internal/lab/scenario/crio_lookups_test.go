package scenario

import (
	"testing"

	"github.com/refit-dev/refit/internal/lab/supervisor"
)

// What CRI-O 1.34 wrote while refit loaded two images, two pulls each.
const crioLog = `time="2026-11-20T23:47:29.588824339Z" level=info msg="Pulling image: registry.k8s.io/coredns/coredns@sha256:aae2f6d9a13ab4dc3fbde65f020196161f5285d144231ea442cd9a893f104ec8" id=bdf64433 name=/runtime.v1.ImageService/PullImage
time="2026-11-20T23:47:29.590382795Z" level=info msg="Trying to access \"127.0.0.1:39285/6thdow7dskzpqfqd5osg5focaf/r1@sha256:aae2f6d9a13ab4dc3fbde65f020196161f5285d144231ea442cd9a893f104ec8\""
time="2026-11-20T23:47:29.592487894Z" level=info msg="Trying to access \"127.0.0.1:39285/6thdow7dskzpqfqd5osg5focaf/r1@sha256:aae2f6d9a13ab4dc3fbde65f020196161f5285d144231ea442cd9a893f104ec8\""
time="2026-11-20T23:47:30.554057251Z" level=info msg="Pulling image: registry.k8s.io/coredns/coredns:v1.14.2" id=7c1ebdf0 name=/runtime.v1.ImageService/PullImage
time="2026-11-20T23:47:30.558323463Z" level=info msg="Trying to access \"127.0.0.1:39285/6thdow7dskzpqfqd5osg5focaf/r1:v1.14.2\""
time="2026-11-20T23:47:41.682870000Z" level=info msg="Pulling image: 127.0.0.1:1/6thdow7dskzpqfqd5osg5focaf:ready" id=94f8f63b name=/runtime.v1.ImageService/PullImage
`

// Only what CRI-O asks by itself is no request, and nothing else is hidden by it.
func TestLookUpsOfPulls(t *testing.T) {
	const abroad = `time="x" level=info msg="Trying to access \"registry.k8s.io/pause:3.10.2\""` + "\n"
	for name, c := range map[string]struct {
		log  string
		of   supervisor.Attempt
		want int
	}{
		"two questions for each pull":                      {crioLog, supervisor.Attempt{To: "registry.k8s.io", Kind: "dns", Count: 4}, 4},
		"fewer, as when the first answer is kept":          {crioLog, supervisor.Attempt{To: "registry.k8s.io", Kind: "dns", Count: 2}, 2},
		"one question more, and none of them is explained": {crioLog, supervisor.Attempt{To: "registry.k8s.io", Kind: "dns", Count: 5}, 0},
		"another host":              {crioLog, supervisor.Attempt{To: "quay.io", Kind: "dns", Count: 2}, 0},
		"a packet":                  {crioLog, supervisor.Attempt{To: "registry.k8s.io", Kind: "udp", Count: 2}, 0},
		"a pull went to a registry": {crioLog + abroad, supervisor.Attempt{To: "registry.k8s.io", Kind: "dns", Count: 4}, 0},
		"a node without CRI-O":      {"", supervisor.Attempt{To: "registry.k8s.io", Kind: "dns", Count: 2}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := readPullLog(c.log).countLookups(c.of); got != c.want {
				t.Fatalf("%d, want %d", got, c.want)
			}
		})
	}
}
