package etcd

import (
	"time"

	"google.golang.org/grpc/backoff"
)

// fastBackoff has the harness's clients reconnect within some tens of milliseconds. gRPC's default waits a
// second after the first failure.
var fastBackoff = backoff.Config{
	BaseDelay: 20 * time.Millisecond, Multiplier: 1.2, Jitter: 0.1, MaxDelay: 100 * time.Millisecond,
}
