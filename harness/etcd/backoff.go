package etcd

import (
	"time"

	"google.golang.org/grpc/backoff"
)

// fastBackoff makes the harness's clients find a server that has just started within some tens of
// milliseconds; gRPC's default waits a second after the first refusal.
var fastBackoff = backoff.Config{
	BaseDelay: 20 * time.Millisecond, Multiplier: 1.2, Jitter: 0.1, MaxDelay: 100 * time.Millisecond,
}
