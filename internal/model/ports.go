package model

// Ports that refit listens on unless it is told otherwise. No common node component
// uses them: docs/reference/ports.md, which a test compares.
const (
	// PortPeers is where agents answer each other.
	PortPeers = 18740
	// PortHealth and PortMetrics are the controller's, on loopback.
	PortHealth  = 18741
	PortMetrics = 18742
	// PortClusterAPI is where manifests and examples put the Cluster API extension.
	PortClusterAPI = 18743
	// PortJoins is where examples put first-boot configurations.
	PortJoins = 18744
)
