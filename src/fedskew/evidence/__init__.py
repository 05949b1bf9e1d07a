"""Studies: results that a page stands on, made again with one command (``fedskew reproduce``).

``study``, ``grids``  what ``evidence/<study>/study.toml`` says: recipes, settings and seeds
``cells``      one recipe with settings and one seed each, resolved, with what decides its numbers
``code``       a fingerprint of the source that a cell's numbers come from
``rows``       the numbers kept of a run; ``playing`` plays a cell in a process of its own
``results``    the results file, and which cells are up to date, older or missing
``tuning``     settings that a grid takes from what another gave on other seeds
``making``     plays what is missing (``planning``, ``forecast`` of the time left, ``watching``)
``claims``     what the papers claim, what we found, and a verdict by rule
``observations``, ``fields``, ``tables``, ``figures``, ``page``  what a person reads, from results
"""
