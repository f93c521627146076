//go:build defects

package agent

import (
	"time"

	"github.com/nemesh/nemesh/overlay/defect"
	"github.com/nemesh/nemesh/overlay/lease"
)

// never is longer than any scenario.
const never = 24 * time.Hour

// weaken changes the options for the defects that are no more than that.
func weaken(o *Options) {
	if o.Defects.Has(defect.FirstEndpointOnly) {
		o.EtcdEndpoints = o.EtcdEndpoints[:1]
	}
	if o.Defects.Has(defect.NoSavedState) {
		o.Grace = never
	}
	if o.Defects.Has(defect.NoForwardRules) {
		o.ForwardRules = false
	}
}

// newHooks gives the agent the behaviour of the defects it was told to have.
func newHooks(a *Agent) hooks {
	var h hooks
	for name, add := range map[defect.Name]func(*Agent, *hooks){
		defect.OnDemandNeighbours:   onDemandNeighbours,
		defect.RenewUnconditionally: renewUnconditionally,
		defect.RenewalGivesUp:       renewalGivesUp,
		defect.ExitOnRevoked:        func(a *Agent, h *hooks) { h.lost = func() { a.failed <- nil } },
		defect.DieOnLostRace:        dieOnLostRace,
		defect.NoOwnerRecords:       noOwnerRecords,
		defect.ReservationTaken:     reservationTaken,
		defect.WatchNotRelisted:     watchNotRelisted,
		defect.RewindUnnoticed:      rewindUnnoticed,
		defect.RewindForgetsPeers:   rewindForgetsPeers,
		defect.GarbageIsEmpty:       garbageIsEmpty,
		defect.BusyWithoutEtcd:      busyWithoutEtcd,
		defect.NewDeviceAtStart:     newDeviceAtStart,
		defect.NoCleanUpAtStart:     noCleanUpAtStart,
		defect.PanicAtExit:          panicAtExit,
		defect.UplinkOnce:           uplinkOnce,
		defect.ForeignAddressFatal:  foreignAddressFatal,
		defect.KeepMTU:              keepMTU,
		defect.RulesOnce:            rulesOnce,
		defect.RulesAppended:        rulesAppended,
		defect.RulesOfOtherSubnet:   rulesOfOtherSubnet,
		defect.BothFamiliesOrNone:   bothFamiliesOrNone,
		defect.AddressNotKept:       func(_ *Agent, h *hooks) { h.forgetful = true },
		defect.ExitWithoutEtcd:      exitWithoutEtcd,
		defect.ExitWhenExhausted:    exitWhenExhausted,
		defect.PeersNeverDropped:    peersNeverDropped,
	} {
		if a.opts.Defects.Has(name) {
			add(a, &h)
		}
	}
	return h
}

// dropFrom returns a view filter that lets nothing through once a view is what it waits for.
func dropFrom(isIt func(lease.View) bool) func(lease.View) (lease.View, bool) {
	silent := false
	return func(v lease.View) (lease.View, bool) {
		silent = silent || isIt(v)
		return v, !silent
	}
}
