package packet

import "errors"

type dropWatch struct{}

func watchDrops() (*dropWatch, error) { return nil, errors.New("todo") }

func (d *dropWatch) close() ([]Drop, error) { return nil, nil }

func ofPacket(o Observation) []Drop { return o.Drops }
