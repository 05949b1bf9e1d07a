"""What a run cost and whom it served.

``journey``         the way of a round's models, which bytes, time and radios follow
``traffic``         bytes by direction and kind
``clock``           simulated time of a plan
``links``           simulated time of one send and one training
``devices``         what clients run on
``device_classes``  clock models: kinds of devices
``energy``          joules, modelled or measured
``targets``         what it took to reach an accuracy
``participation``   who trained, how evenly
``fairness``        whom the models serve
"""
