"""One round, and one after another: the only loop of fedskew.

``federation``       READ FIRST: prepare, play_round, run
``method``           a recipe made ready to play: a function in every slot
``measuring``        who the clients are: signal, distance, clustering
``training``         trains a plan wave by wave
``verifying``        replies that make the model worse on the server's own examples
``merging``          merges what came back, slot by slot
``guard``            what any aggregation rule can be given against hostile clients
``slots``            what model slots begin with and where each client lives
``asking``           what a rule may ask for before it decides, answered and charged
``probe``            the short training behind estimated signals
``label_shares``     the federation's label shares, for objectives that need them
``late_clients``     clients that join a run that is under way
``nearest_cluster``  which stored cluster a new client belongs to
``evaluation``       how good the models are, for the server and for each client
``serving``          the model that is tested and saved: the last one, or a mean of the last
``feedback``         what a round taught, for rules that learn
``trust``            checks what clients say before a rule sees it
``timing``           how long clients take on the simulated clock
``costs``            what a round cost in simulated seconds, joules and sample passes
``finishing``        what is done after the last round, where a recipe has a [finish]
"""
